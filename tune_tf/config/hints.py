"""Settings of sweep files, and arguments of ``search``, in the words of other tools."""

import re
from collections.abc import Collection
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
    **dict.fromkeys(("mode", "goal", "direction"), "objective.mode"),
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
            *("max_iterations", "max_length"),
        ),
        "epochs",
    ),
    **dict.fromkeys(
        ("early_terminate", "early_stopping", "pruner", "schedulers"), "scheduler.name"
    ),
    **dict.fromkeys(("gpus", "num_gpus", "gpu", "slots_per_trial"), "resources.gpus"),
    **dict.fromkeys(("cpus", "num_cpus", "cpu"), "resources.cpus"),
    **dict.fromkeys(("num_replicas", "replicas"), "parallelism.num_replicas"),
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
    **dict.fromkeys(("maximize", "maximise", "maximum"), "max"),
    **dict.fromkeys(("minimize", "minimise", "minimum"), "min"),
    **dict.fromkeys(("bayes", "bayesian", "bayesianoptimization", "hyperopt"), "tpe"),
}
"""Value here by that of another tool."""


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
    name, section, setting = _setting_here(key)
    path = f"{section}.{setting}".strip(".")
    plain = value if isinstance(value, str | int | float) else ...
    text = repr(_VALUES.get(str(plain), plain)).replace("Ellipsis", "...")
    if argument := _ARGUMENTS.get(path) or _ARGUMENTS.get(name):
        return f"{argument}={'(x, y)' if argument == 'data' else text}"
    if path == "objective.mode":
        return f'objective=tune_tf.Objective("val_loss", {text})'
    if setting == "num_members":
        return f"parallelism=tune_tf.Ensemble({text})"
    if not setting:
        return None
    return f"{section}={{{setting!r}: {text}}}" if section else f"{setting}={text}"


def _setting_here(key: object) -> tuple[str, str, str]:
    """Return a name elsewhere in snake case, and the section and setting here; or empty texts."""
    name = re.sub(r"(?<=[a-z])([A-Z])", r"_\1", str(key).replace("-", "_")).lower()
    ours = _OURS.get(name, "")
    section, _, setting = (f"{ours}{name}" if ours.endswith(".") else ours).rpartition(".")
    return name, section, setting


def line_for(key: object, value: Any, known: Collection[str]) -> str | None:
    """Return the line of a sweep file that a setting of another tool means, or None.

    Args:
        key: Name of the setting elsewhere, in snake or camel case.
        value: Its value, which the line keeps if it is plain.
        known: Settings of the section that the key stands in.
    """
    _, section, setting = _setting_here(key)
    if not setting:
        return None
    plain = value if isinstance(value, str | int | float) else "..."
    line: dict[str, Any] = {"kind": "ensemble"} if setting == "num_members" else {}
    line |= {setting: _VALUES.get(str(plain), plain)}
    is_there = not section or (setting in known and section not in known)
    text = inline_yaml(line if is_there else {section: line})[1:-1]
    return text.replace("'...'", "...")
