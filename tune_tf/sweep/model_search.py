"""Search in one call from Python."""

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
from tune_tf.sweep.run import run_sweep
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
    validation: Any = 0.2,
    callbacks: Sequence[tune.Callback] = (),
    **settings: Any,
) -> SweepResult:
    """Search for the best hyperparameters of a Keras model, in one call.

    It runs a sweep, which ``tune-tf status``, ``report``, ``resume`` and the other verbs know by
    its name. The model's code and the data are stored in the sweep's folder.

    Args:
        model: A function from a config, a dict, to a compiled Keras model; a
            :class:`~tune_tf.workload.Workload` class or instance; or a KerasTuner hypermodel.
        data: Arrays ``(x, y)`` or ``(x, y, sample_weight)``, a :class:`~tune_tf.workload.Data`, or
            a function from a config to one; None for a workload, which has its own.
        space: Parameters by name; None for that of a hypermodel or workload. ``batch_size`` is the
            number of rows of an update, 32 by default.
        epochs: Maximum epochs of a trial.
        trials: Number of trials.
        objective: Metric to optimize; the mode of a name follows from it: a score such as
            ``val_accuracy`` is maximized, anything else minimized.
        validation: Share of the rows of arrays to validate on, drawn at random; or such rows
            ``(x, y)``.
        callbacks: Additional Tune callbacks.
        settings: Other settings of :class:`~tune_tf.config.SweepConfig`, such as ``name``,
            ``scheduler={"name": "asha"}``, ``resources`` or ``mlflow=None``.

    Returns:
        The result; :meth:`~tune_tf.results.SweepResult.best_model` is the best trial's model.

    Raises:
        TuneTfError: An argument, the workload or the cluster is invalid; raised before any trial
            starts.
    """
    workload = _workload(model, data, space, validation, settings.get("seed", 0))
    if space is None:
        space = getattr(workload, "space", None)
    if space is None:
        raise InvalidSettingsError(
            "space is missing: say what to search, for example "
            '{"learning_rate": tune_tf.Float(1e-4, 1e-1, log=True)}'
        )
    if isinstance(objective, str):
        objective = Objective(objective, likely_mode(objective))
    name = getattr(model, "__name__", type(model).__name__)
    config = SweepConfig(
        **{
            "name": re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-") or "search",
            "workload": workload,
            "objective": objective,
            "space": space if isinstance(space, SearchSpace) else SearchSpace(space),
            "epochs": epochs,
            "budget": {**settings.pop("budget", {}), "num_samples": trials},
            **settings,
        }
    )
    return run_sweep(config, callbacks=callbacks)


def _workload(model: Any, data: Any, space: Any, validation: Any, seed: int) -> Any:
    if is_workload(model):
        if data is not None:
            raise InvalidSettingsError(
                "data is given, but a workload loads its own data: leave data out"
            )
        return model
    is_hypermodel = hasattr(model, "declare_hyperparameters")
    if not callable(model) and not is_hypermodel:
        raise InvalidSettingsError(
            "model must be a function from a config to a compiled Keras model, a Workload or a "
            f"KerasTuner hypermodel, not {type(model).__name__}"
        )
    data = _data(data, validation, seed)
    if is_hypermodel or space is None:
        return from_hypermodel(model, data)
    return FunctionWorkload(model, data)


def _data(data: Any, validation: Any, seed: int) -> Data | Callable[[Config], Data]:
    if isinstance(data, Data) or callable(data):
        return data
    if not isinstance(data, tuple) or len(data) not in (2, 3):
        raise InvalidSettingsError(
            "data must be arrays (x, y) or (x, y, sample_weight), a tune_tf.Data, or a function "
            f"from a config to one, not {type(data).__name__}; for a tf.data.Dataset write "
            "`data=lambda config: tune_tf.Data(train, validation)`, with the datasets made inside"
        )
    if not isinstance(validation, float):
        return Data(data, validation)
    if not 0 < validation < 1:
        raise InvalidSettingsError(f"validation must be a share from 0 to 1, not {validation}")
    data = tuple(map_nested(np.asarray, part) for part in data)
    lengths = {len(leaf) for _, leaf in leaves_of("", data)}
    if len(lengths) != 1 or (num_rows := lengths.pop()) < 2:
        raise InvalidSettingsError("the arrays of data must have the same number of rows, above 1")
    order = np.random.default_rng(seed).permutation(num_rows)
    num_validation = min(max(1, round(validation * num_rows)), num_rows - 1)
    train, held_out = (
        tuple(map_nested(lambda leaf: leaf[rows], part) for part in data)  # noqa: B023
        for rows in (np.sort(order[num_validation:]), np.sort(order[:num_validation]))
    )
    return Data(train, held_out)
