"""Settings of sweep files, and arguments of ``search``, in the words of other tools."""

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from tune_tf.space.document import inline_yaml

_OURS: Final = {
    **dict.fromkeys(
        (
            *("max_trials", "n_trials", "num_trials", "trials", "samples", "num_samples"),
            *("max_evals", "max_trial_count", "run_cap", "count"),
        ),
        "budget.num_samples",
    ),
    **dict.fromkeys(
        ("timeout", "time", "time_budget", "time_budget_s", "time_limit", "max_time"),
        "budget.time_budget_s",
    ),
    "target": "budget.target",
    "patience": "budget.patience",
    **dict.fromkeys(("metric", "monitor", "objective_metric_name"), "objective.metric"),
    **dict.fromkeys(("mode", "goal", "direction", "smaller_is_better"), "objective.mode"),
    **dict.fromkeys(
        ("method", "algorithm", "algorithm_name", "sampler", "search_alg"), "searcher.sampler"
    ),
    **dict.fromkeys(("points_to_evaluate", "warm_start_from"), "searcher."),
    **dict.fromkeys(("program", "entrypoint", "trainable", "model", "script"), "workload"),
    **dict.fromkeys(
        ("parameters", "hyperparameters", "params", "param_space", "search_space", "config"),
        "space",
    ),
    **dict.fromkeys(("batch_size", "learning_rate", "lr", "optimizer"), "space."),
    **dict.fromkeys(
        (
            *("max_epochs", "num_epochs", "n_epochs", "epochs_per_trial", "max_t"),
            *("max_iterations", "max_length", "max_iter"),
        ),
        "epochs",
    ),
    **dict.fromkeys(
        ("early_terminate", "early_stopping", "pruner", "schedulers"), "scheduler.name"
    ),
    **dict.fromkeys(("eta", "divisor", "factor"), "scheduler.reduction_factor"),
    "min_iter": "scheduler.grace_period",
    **dict.fromkeys(("max_restarts", "max_retries_per_trial", "max_retries"), "max_failures"),
    **dict.fromkeys(("gpus", "num_gpus", "gpu"), "resources.gpus"),
    **dict.fromkeys(("cpus", "num_cpus", "cpu"), "resources.cpus"),
    **dict.fromkeys(("num_replicas", "replicas", "slots_per_trial"), "parallelism.num_replicas"),
    **dict.fromkeys(
        ("parallel_trial_count", "n_jobs", "max_concurrent", "max_concurrent_runs"),
        "max_concurrent_trials",
    ),
    **dict.fromkeys(("tracking_uri", "experiment_name"), "mlflow."),
    **dict.fromkeys(("project", "experiment"), "mlflow.experiment_name"),
    **dict.fromkeys(("local_dir", "directory", "output_dir", "output"), "storage_path"),
    "executions_per_trial": "parallelism.num_members",
    **dict.fromkeys(("dataset", "datasets", "workload_args"), "data"),
}
"""Path of the setting here by its name elsewhere; a path that ends in a dot takes the name."""

_VALUES: Final = {
    "mode": {
        **dict.fromkeys(("maximize", "maximise", "maximum", "False"), "max"),
        **dict.fromkeys(("minimize", "minimise", "minimum", "True"), "min"),
    },
    "sampler": dict.fromkeys(("bayes", "bayesian", "bayesianoptimization", "hyperopt"), "tpe"),
}
"""Value here by that of another tool, by setting."""

_BESIDE: Final = {"num_members": {"kind": "ensemble"}, "grace_period": {"name": "asha"}}
"""Setting that another one needs beside it."""


_ARGUMENTS: Final = {
    "workload": "model",
    "data": "data",
    "space": "space",
    "objective.metric": "objective",
    "budget.num_samples": "trials",
    **dict.fromkeys(("validation_data", "validation_split", "val_data"), "validation"),
    **dict.fromkeys(("x", "y", "x_train", "train_data", "training_data"), "data"),
    **dict.fromkeys(("hypermodel", "build_fn", "model_fn", "build_model"), "model"),
}
"""Argument of ``search`` by the setting that it stands for, or by its name elsewhere."""


def argument_for(key: str, value: Any) -> str | None:
    """Return the argument of ``search`` to write for a setting of another tool, or None."""
    name, section, setting = _setting_here(key, value)
    path = f"{section}.{setting}".strip(".")
    plain = _plain(setting, value)
    text = "..." if plain == "..." else repr(plain)
    if argument := _ARGUMENTS.get(path) or _ARGUMENTS.get(name):
        return f"{argument}={'(x, y)' if argument == 'data' else text}"
    if path == "objective.mode":
        return f'objective=tune_tf.Objective("val_loss", {text})'
    if setting == "num_members":
        return f"parallelism=tune_tf.Ensemble({text})"
    if not setting:
        return None
    return f"{section}={{{setting!r}: {text}}}" if section else f"{setting}={text}"


def _setting_here(key: object, value: Any) -> tuple[str, str, str]:
    """Return a name elsewhere in snake case, and the section and setting here; or empty texts."""
    name = re.sub(r"(?<=[a-z])([A-Z])", r"_\1", str(key).replace("-", "_")).lower()
    ours = _OURS.get(name, "")
    if name == "goal" and isinstance(value, int | float):
        ours = "budget.target"  # Katib's; that of W&B is a mode
    elif name == "type" and isinstance(value, str) and value in _VALUES["mode"]:
        ours = "objective.mode"  # Katib's
    section, _, setting = (f"{ours}{name}" if ours.endswith(".") else ours).rpartition(".")
    return name, section, setting


def line_for(key: object, value: Any, known: Collection[str]) -> str | None:
    """Return the line of a sweep file that a setting of another tool means, or None.

    Args:
        key: Name of the setting elsewhere, in snake or camel case.
        value: Its value, which the line keeps if it is plain.
        known: Settings of the section that the key stands in.
    """
    _, section, setting = _setting_here(key, value)
    if not setting:
        return None
    line = {**_BESIDE.get(setting, {}), setting: _plain(setting, value)}
    if setting == "metric" and isinstance(value, Mapping):  # of W&B
        line = {
            "metric": _plain("name", value.get("name")),
            "mode": _plain("mode", value.get("goal", "minimize")),
        }
    if key == "early_terminate" and isinstance(value, Mapping):  # of W&B
        limit = value.get("min_iter") or value.get("max_iter") or 1
        line = {"name": "asha", "grace_period": limit}
    is_there = not section or (setting in known and section not in known)
    text = inline_yaml(line if is_there else {section: line})[1:-1]
    return text.replace("'...'", "...")


def _plain(setting: str, value: Any) -> Any:
    """Return the value of a setting here, or dots for what is no plain value."""
    if isinstance(value, Mapping):
        value = value.get(setting)  # such as ``{epochs: 32}``
    if setting == "workload" and isinstance(value, str) and value.endswith(".py"):
        value = f"{value}:MyWorkload"
    plain = value if isinstance(value, str | int | float) else "..."
    return _VALUES.get(setting, {}).get(str(plain), plain)
