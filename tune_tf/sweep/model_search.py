"""Search in one call from Python."""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from ray import tune

from tune_tf.config import SweepConfig
from tune_tf.config.stored_workload import is_workload
from tune_tf.data.nested import leaves_of, map_nested
from tune_tf.errors import InvalidSettingsError
from tune_tf.objective import Objective, likely_mode
from tune_tf.results import SweepResult
from tune_tf.space import SearchSpace
from tune_tf.sweep.callbacks.progress import ProgressLines
from tune_tf.sweep.run import run_sweep
from tune_tf.validation import unknown_key_error
from tune_tf.workload import Config, Data
from tune_tf.workloads.function_workload import FunctionWorkload
from tune_tf.workloads.keras_tuner.hypermodel import from_hypermodel


def search(
    model: Any,
    data: Any = None,
    space: SearchSpace | Mapping[str, Any] | None = None,
    *,
    epochs: int = 100,
    trials: int = 20,
    objective: str | Objective | Sequence[Objective] = "val_loss",
    validation: Any = None,
    callbacks: Sequence[Any] = (),
    verbose: bool = True,
    **settings: Any,
) -> SweepResult:
    """Search for the best hyperparameters of a Keras model, in one call.

    It runs a sweep, which ``tune-tf status``, ``report``, ``resume`` and the other verbs know by
    its name. The model's code and the data are stored in the sweep's folder.

    Args:
        model: A function from a config, a dict, to a compiled Keras model; a
            :class:`~tune_tf.workload.Workload` class or instance; or a KerasTuner hypermodel,
            also a function ``build(hp)``.
        data: Arrays ``(x, y)`` or ``(x, y, sample_weight)``, a :class:`~tune_tf.workload.Data`, or
            a function from a config to one, which may hold a ``tf.data.Dataset`` that the function
            makes; None for a workload, which has its own.
        space: Parameters by name; None for that of a hypermodel or workload. ``batch_size`` is the
            number of rows of an update, 32 by default.
        epochs: Maximum epochs of a trial.
        trials: Number of trials.
        objective: Metric to optimize; the mode of a name follows from it: a score such as
            ``val_accuracy`` is maximized, a loss or error minimized.
        validation: Rows ``(x, y)`` to validate on; or the share of the rows of ``data`` to draw at
            random for it, a fifth by default.
        callbacks: Keras callbacks, of which each trial gets copies, and Tune callbacks.
        verbose: Whether to print a line of progress every 10 s.
        settings: Other settings of :class:`~tune_tf.config.SweepConfig`, such as ``name``,
            ``scheduler={"name": "asha"}``, ``resources`` or ``mlflow=None``.

    Returns:
        The result; :meth:`~tune_tf.results.SweepResult.best_model` is the best trial's model.

    Raises:
        TuneTfError: An argument, the workload or the cluster is invalid; raised before any trial
            starts.
    """
    _check_names(settings)
    name = _name(model)
    of_sweep = [each for each in callbacks if isinstance(each, tune.Callback)]
    of_trials = [each for each in callbacks if not isinstance(each, tune.Callback)]
    if not is_workload(model):
        data = _data(data, validation, settings.get("seed", 0))
        model = _workload(model, data, space, of_trials)
    elif data is not None or validation is not None or of_trials:
        raise InvalidSettingsError(
            "a workload has its own data, validation rows and Keras callbacks, from its load_data "
            "and callbacks: leave these arguments out"
        )
    if space is None and (space := getattr(model, "space", None)) is None:
        raise _missing_space()
    budget = settings.pop("budget", {})
    if isinstance(budget, Mapping):
        if "num_samples" in budget:
            raise InvalidSettingsError("budget.num_samples is the argument trials here")
        budget = {**budget, "num_samples": trials}
    lacks_rows = isinstance(data, Data) and data.validation is None
    if lacks_rows and "val_" in str(objective) and "parallelism" not in settings:  # such as folds
        raise InvalidSettingsError(
            "objective is a metric of validation rows, but Data has none: write "
            'tune_tf.Data(train=..., validation=...), or objective="loss"'
        )
    settings.setdefault("name", name)
    config = SweepConfig(
        workload=model,
        objective=_objective(objective),
        space=space if isinstance(space, SearchSpace) else SearchSpace(space),
        epochs=epochs,
        budget=budget,
        **settings,
    )
    progress = [ProgressLines(config)] if verbose else []
    return run_sweep(config, callbacks=[*of_sweep, *progress])


def _check_names(settings: Mapping[str, Any]) -> None:
    """Refuse unknown arguments."""
    known = [*inspect.signature(search).parameters, *SweepConfig.model_fields]
    known = [name for name in known if name not in ("settings", "workload")]
    if errors := [unknown_key_error(name, known) for name in settings if name not in known]:
        raise InvalidSettingsError(errors)


def _name(model: Any) -> str:
    name = getattr(model, "__name__", type(model).__name__)
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-") or "search"


def _objective(objective: Any) -> Any:
    if hasattr(objective, "objectives"):  # several of KerasTuner's
        objective = objective.objectives
    if isinstance(objective, list | tuple):
        return tuple(map(_objective, objective))
    if hasattr(objective, "direction"):  # KerasTuner's
        return Objective(objective.name, objective.direction)
    if not isinstance(objective, str):
        return objective
    mode = likely_mode(objective)
    if mode is None:
        raise InvalidSettingsError(
            f"whether {objective} is to be maximized is not known by its name: write "
            f'objective=tune_tf.Objective("{objective}", "max"), or "min"'
        )
    return Objective(objective, mode)


def _missing_space() -> InvalidSettingsError:
    return InvalidSettingsError(
        "space is missing: say what to search, for example "
        '{"learning_rate": tune_tf.Float(1e-4, 1e-1, log=True)}; only a function build(hp) for '
        "KerasTuner's HyperParameters declares its own"
    )


def _workload(model: Any, data: Any, space: Any, callbacks: list[Any]) -> Any:
    """Return the workload of a function or hypermodel."""
    if hasattr(model, "run_trial"):
        raise InvalidSettingsError(
            f"model is a tuner of KerasTuner, {type(model).__name__}: give its hypermodel, which "
            "must build a Keras model; in place of a run_trial of your own, write a "
            "tune_tf.Workload with train_step"
        )
    is_hypermodel = hasattr(model, "declare_hyperparameters")
    if hasattr(model, "compile_from_config") or not (callable(model) or is_hypermodel):
        kind = "a Keras model" if callable(model) else type(model).__name__
        raise InvalidSettingsError(
            "model must be a function from a config to a compiled Keras model, a Workload or a "
            f"KerasTuner hypermodel, not {kind}"
        )
    if is_hypermodel:
        return from_hypermodel(model, data, callbacks=callbacks)
    if space is not None:
        return FunctionWorkload(model, data, callbacks)
    if next(iter(inspect.signature(model).parameters), "")[:2] != "hp":
        raise _missing_space()
    return from_hypermodel(model, data, callbacks=callbacks)


def _data(data: Any, validation: Any, seed: int) -> Data | Callable[[Config], Data]:
    """Return data sets, or the function that makes them; a share of arrays is drawn by ``seed``."""
    if isinstance(data, Data) or callable(data):
        if validation is not None:
            raise InvalidSettingsError(
                "validation is given, but data has validation rows of its own: leave it out"
            )
        return data
    parts = data if isinstance(data, tuple) else ()
    if len(parts) not in (2, 3) or any(hasattr(part, "element_spec") for part in parts):
        raise InvalidSettingsError(
            "data must be arrays (x, y) or (x, y, sample_weight), a tune_tf.Data, or a function "
            f"from a config to one, not {type(data).__name__}; a data set cannot be sent to other "
            "processes, so write a function `def load_data(config):` that makes it, with absolute "
            "paths, and returns `tune_tf.Data(train, validation)`, and give data=load_data"
        )
    data = _arrays("data", parts)
    if validation is None:
        validation = 0.2
    if not isinstance(validation, int | float):
        return Data(data, _arrays("validation", validation))
    if not 0 < validation < 1:
        raise InvalidSettingsError(f"validation must be a share from 0 to 1, not {validation}")
    num_rows = len(next(leaves_of("", data))[1])
    if num_rows < 2:
        raise InvalidSettingsError("data has one row: give validation=(x, y)")
    order = np.random.default_rng(seed).permutation(num_rows)
    num_validation = min(max(1, round(validation * num_rows)), num_rows - 1)
    train, held_out = (
        map_nested(lambda leaf: leaf[rows], data)  # noqa: B023
        for rows in (np.sort(order[num_validation:]), np.sort(order[:num_validation]))
    )
    return Data(train, held_out)


def _arrays(name: str, data: Any) -> Any:
    arrays = map_nested(np.asarray, data)
    sizes = {len(leaf) if leaf.ndim else 0 for _, leaf in leaves_of("", arrays)}
    if len(sizes) != 1 or not min(sizes) or not isinstance(arrays, tuple):
        raise InvalidSettingsError(
            f"{name} must be arrays (x, y) of the same number of rows, not "
            f"{', '.join(str(leaf.shape) for _, leaf in leaves_of('', arrays))}"
        )
    return arrays
