"""Arguments of KerasTuner's ``Tuner`` that concern the hypermodel."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tune_tf.errors import InvalidSettingsError

_OF_A_SWEEP = {
    "objective": "objective of the sweep",
    "max_trials": "trials of tune_tf.search",
    "max_epochs": "epochs of tune_tf.search",
    "seed": "seed of the sweep",
    "executions_per_trial": 'parallelism={"kind": "ensemble", "num_members": ...} of the sweep',
    "distribution_strategy": "parallelism of the sweep",
    "directory": "storage_path of the sweep",
    "project_name": "name of the sweep",
    "max_retries_per_trial": "max_failures of the sweep",
}
_WITHOUT_COUNTERPART = (
    *("allow_new_entries", "alpha", "beta", "factor", "hyperband_iterations", "logger"),
    *("max_consecutive_failed_trials", "max_model_size", "num_initial_points", "oracle"),
    *("overwrite", "tuner_id"),
)


@dataclass(frozen=True, eq=False)
class TunerArguments:
    """Arguments of ``keras_tuner.Tuner`` that concern the hypermodel, with the same meaning.

    Args:
        hyperparameters: ``HyperParameters`` that replace those of the hypermodel by name.
        tune_new_entries: Whether hyperparameters that only the hypermodel declares are searched;
            otherwise they keep their defaults.
        optimizer: Replaces that of ``compile``.
        loss: Replaces that of ``compile``.
        metrics: Replace those of ``compile``.
    """

    hyperparameters: Any = None
    tune_new_entries: bool = True
    optimizer: Any = None
    loss: Any = None
    metrics: Any = None

    def __post_init__(self) -> None:
        """Refuse ``tune_new_entries=False`` with nothing to search."""
        if not self.tune_new_entries and not self.hyperparameters:
            raise InvalidSettingsError(
                "tune_new_entries=False needs hyperparameters=hp, whose entries are searched"
            )

    def declare(self, hps: Any) -> Any:
        """Declare the given hyperparameters; return where those of the hypermodel are declared."""
        if self.hyperparameters:
            hps.merge(self.hyperparameters, overwrite=False)
        return hps if self.tune_new_entries else hps.copy()

    def compile(self, model: Any) -> None:
        """Compile a model again, with the given optimizer, loss and metrics.

        Raises:
            ValueError: The model was not compiled and an argument is missing, or the other
                arguments of its ``compile`` cannot be copied.
        """
        import keras  # late: loads TensorFlow

        given = {"optimizer": self.optimizer, "loss": self.loss, "metrics": self.metrics}
        given = {name: value for name, value in given.items() if value}
        is_compiled = getattr(model, "compiled", True)
        if not is_compiled and (missing := _OBJECTS - given.keys()):
            raise ValueError(
                "the hypermodel does not compile its model: compile in build, or give "
                f"{' and '.join(sorted(missing))} to from_hypermodel, as to a Tuner"
            )
        if not given:
            return
        own: dict[str, Any] = {}
        if is_compiled:
            config = model.get_compile_config() or {}
            kept = {
                name: value for name, value in config.items() if name not in {*_OBJECTS, *given}
            }
            try:
                own = keras.saving.deserialize_keras_object(kept)
            except (TypeError, ValueError) as error:
                raise ValueError(
                    f"the hypermodel's compile({', '.join(kept)}) cannot be repeated with "
                    f"{', '.join(given)} of the tuner: {error}; give metrics=[...] as well, or "
                    "compile with all of them in build"
                ) from error
            own |= {name: getattr(model, name) for name in _OBJECTS}
        model.compile(**{**own, **keras.tree.map_structure(_fresh, given)})


_OBJECTS = {"optimizer", "loss"}  # which a model keeps as they were given


def _fresh(value: Any) -> Any:
    """Return a new object like an optimizer, loss or metric, which have state."""
    return type(value).from_config(value.get_config()) if hasattr(value, "get_config") else value


def check_fit_arguments(arguments: Mapping[str, Any]) -> None:
    """Refuse arguments of ``Tuner`` that are settings of a sweep.

    Raises:
        InvalidSettingsError: With the setting for each.
    """
    errors = [
        f"{name} of KerasTuner's Tuner is {_OF_A_SWEEP[name]} here"
        if name in _OF_A_SWEEP
        else f"{name} of KerasTuner's Tuner has no counterpart: leave it out"
        for name in arguments
        if name in _OF_A_SWEEP or name in _WITHOUT_COUNTERPART
    ]
    if errors:
        raise InvalidSettingsError(errors)
