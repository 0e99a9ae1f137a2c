"""Checkpoint of a trial in one file, written atomically and read without pickle.

The file is a NumPy ``.npz`` archive with the variables of model and optimizer and one JSON text.
"""

import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import keras
import numpy as np

from tune_tf.errors import CheckpointError
from tune_tf.training.callback_state import Arrays, CallbackState, decode, encode
from tune_tf.training.core.scalars import LearningRate, set_learning_rate
from tune_tf.training.core.variable_names import VariableName, match_variables, variable_names

FILE_NAME = "trial.npz"
_FORMAT = 2
_HEAD = "head"


@dataclass(frozen=True)
class Checkpoint:
    """State of a trial between two epochs.

    Args:
        model: Values of ``model.variables``: weights, statistics, states of random generators.
        optimizer: Values of ``optimizer.variables``: iterations, slots, learning rate.
        epoch: Number of finished epochs; with the seed, it determines the order of the data.
        seed: The trial's seed.
        config: The trial's config when it was saved.
        initial_rate: The trial's initial learning rate; None for a schedule.
        callbacks: State of the Keras callbacks.
        names: Names of the variables, to match them to a model.
        pending_metrics: Metrics of the last epoch if ``on_epoch_end`` has not been called for it.
        has_ended: Whether ``on_train_end`` has been called, so that the weights are final.
        needs_data: Whether ``load_data`` must run before the model is rebuilt, because it sets
            attributes of the workload.
    """

    model: "list[np.ndarray[Any, Any]]" = field(repr=False)
    optimizer: "list[np.ndarray[Any, Any]]" = field(repr=False)
    epoch: int
    seed: int
    config: Mapping[str, Any]
    initial_rate: LearningRate = None
    callbacks: CallbackState = field(default_factory=CallbackState)
    names: list[VariableName] = field(default_factory=list)
    pending_metrics: Mapping[str, Any] | None = None
    has_ended: bool = False
    needs_data: bool = False

    @classmethod
    def of(
        cls,
        model: keras.Model,
        *,
        epoch: int,
        seed: int,
        config: Mapping[str, Any],
        initial_rate: LearningRate,
        callbacks: CallbackState = CallbackState(),  # noqa: B008  frozen
        has_ended: bool = False,
        needs_data: bool = False,
    ) -> "Checkpoint":
        """Return the checkpoint of a built model with a built optimizer."""
        return cls(
            model=[variable.numpy() for variable in model.variables],
            optimizer=[variable.numpy() for variable in model.optimizer.variables],
            epoch=epoch,
            seed=seed,
            config=dict(config),
            initial_rate=initial_rate,
            callbacks=callbacks,
            names=variable_names(model),
            has_ended=has_ended,
            needs_data=needs_data,
        )

    def load_into(self, model: keras.Model, initial_rate: LearningRate) -> None:
        """Set a built model and its optimizer to this state.

        The learning rate is the saved one, as callbacks left it, unless the trial's initial rate
        differs from the saved trial's (after an exploit of population-based training). Variables
        that a zero hyperparameter removes, such as dropout states and momentum, may be missing on
        either side; those that the checkpoint lacks start fresh.

        Raises:
            CheckpointError: The state belongs to a model of another structure.
        """
        variables = [*model.variables, *model.optimizer.variables]
        names = variable_names(model)
        found = match_variables(self.names, names)
        stored = [*self.model, *self.optimizer]
        for variable, name, index in zip(variables, names, found, strict=True):
            if index is not None:
                variable.assign(stored[index])
            elif name.is_slot:
                variable.assign(np.zeros(variable.shape))
        if initial_rate is not None and initial_rate != self.initial_rate:
            set_learning_rate(model, initial_rate)

    def write(self, folder: Path) -> None:
        """Write the file atomically."""
        own = ("model", "optimizer", "callbacks", "pending_metrics")
        head = {k: v for k, v in _fields(self).items() if k not in own}
        others = dict(self.callbacks.arrays)
        head["callbacks"] = self.callbacks.attributes
        head["pending_metrics"] = (
            None if self.pending_metrics is None else encode(dict(self.pending_metrics), others)
        )
        arrays = [*self.model, *self.optimizer, *others.values()]
        head |= {
            "format": _FORMAT,
            "num_model": len(self.model),
            "digests": list(others),
            "dtypes": [str(array.dtype) for array in arrays],
        }
        target = folder / FILE_NAME
        partial = folder / f".{FILE_NAME}.{os.getpid()}"
        named: dict[str, Any] = {f"a{i}": _storable(array) for i, array in enumerate(arrays)}
        named[_HEAD] = np.array(json.dumps(head, default=_plain))
        try:
            with partial.open("wb") as file:
                np.savez(file, **named)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)

    @classmethod
    def read(cls, folder: Path) -> "Checkpoint":
        """Read the file.

        Raises:
            CheckpointError: The file is missing, truncated or in another format.
        """
        path = folder / FILE_NAME
        try:
            with np.load(path, allow_pickle=False) as archive:
                head = json.loads(str(archive[_HEAD]))
                if head["format"] != _FORMAT:
                    raise CheckpointError(
                        f"{path} has format {head['format']}, this version reads {_FORMAT}"
                    )
                arrays = [
                    _restored(archive[f"a{i}"], dtype) for i, dtype in enumerate(head["dtypes"])
                ]
        except FileNotFoundError:
            raise CheckpointError(f"there is no checkpoint at {path}") from None
        except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile) as error:
            raise CheckpointError(f"{path} is not a complete checkpoint: {error}") from error
        digests = head["digests"]
        split, end = head["num_model"], len(arrays) - len(digests)
        others: Arrays = dict(zip(digests, arrays[end:], strict=True))
        return cls(
            model=arrays[:split],
            optimizer=arrays[split:end],
            epoch=head["epoch"],
            seed=head["seed"],
            config=head["config"],
            initial_rate=head["initial_rate"],
            callbacks=CallbackState([(name, each) for name, each in head["callbacks"]], others),
            names=[
                VariableName(path, role, tuple(shape), *more)
                for path, role, shape, *more in head["names"]
            ],
            pending_metrics=decode(head["pending_metrics"], others),
            has_ended=head["has_ended"],
            needs_data=head["needs_data"],
        )


def _fields(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the fields; ``dataclasses.asdict`` would copy the arrays."""
    return {name: getattr(checkpoint, name) for name in Checkpoint.__dataclass_fields__}


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    return repr(value)


def _storable(array: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """View an array of a type unknown to NumPy (bfloat16) as bytes; return others unchanged."""
    return array if array.dtype.isbuiltin == 1 else array.view(f"V{array.dtype.itemsize}")


def _restored(array: "np.ndarray[Any, Any]", dtype: str) -> "np.ndarray[Any, Any]":
    if str(array.dtype) == dtype:
        return array
    import ml_dtypes  # comes with TensorFlow; only half-precision models need it

    return array.view(getattr(ml_dtypes, dtype))
