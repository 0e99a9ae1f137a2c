"""Everything a trial needs to go on, in one file that is whole or not there.

The file is a NumPy ``.npz`` archive: the arrays of the model's and the optimizer's variables, and
one JSON text. Nothing in it is unpickled.
"""

import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import keras
import numpy as np

from tune_tf.errors import CheckpointError
from tune_tf.training.scalars import set_learning_rate

FILE_NAME = "trial.npz"
_FORMAT = 1
_HEAD = "head"


@dataclass(frozen=True)
class Checkpoint:
    """The state of a trial between two epochs.

    Args:
        model: Values of ``model.variables``: weights, statistics, states of random generators.
        optimizer: Values of ``optimizer.variables``: iterations, slots, learning rate.
        epoch: Epochs done; the order of the data follows from it and the seed.
        seed: The trial's seed.
        config: The trial's values when it was saved.
        initial_rate: The learning rate that the trial started with; None for a schedule.
        callbacks: Counters of the Keras callbacks.
        names: Paths of all variables, for telling what does not fit.
        untold: Metrics of the last epoch, if the callbacks have not been told of its end yet.
    """

    model: "list[np.ndarray[Any, Any]]" = field(repr=False)
    optimizer: "list[np.ndarray[Any, Any]]" = field(repr=False)
    epoch: int
    seed: int
    config: Mapping[str, Any]
    initial_rate: float | None = None
    callbacks: list[dict[str, Any]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    untold: Mapping[str, float] | None = None

    @classmethod
    def of(
        cls,
        model: keras.Model,
        *,
        epoch: int,
        seed: int,
        config: Mapping[str, Any],
        initial_rate: float | None,
        callbacks: Sequence[dict[str, Any]] = (),
    ) -> "Checkpoint":
        """Return the state of a model and its optimizer, both built."""
        return cls(
            model=[variable.numpy() for variable in model.variables],
            optimizer=[variable.numpy() for variable in model.optimizer.variables],
            epoch=epoch,
            seed=seed,
            config=dict(config),
            initial_rate=initial_rate,
            callbacks=list(callbacks),
            names=[variable.path for variable in (*model.variables, *model.optimizer.variables)],
        )

    def load_into(self, model: keras.Model, initial_rate: float | None) -> None:
        """Set a built model and its optimizer to this state.

        A trial that begins with another learning rate than the saved one did (after an exploit of
        population-based training) keeps its own; else it takes the saved one as callbacks left it.

        Args:
            model: The model.
            initial_rate: The learning rate that the trial begins with; None for a schedule.

        Raises:
            CheckpointError: The state is of a model of another structure.
        """
        variables = [*model.variables, *model.optimizer.variables]
        self._check_fits([(variable.path, tuple(variable.shape)) for variable in variables])
        for variable, value in zip(variables, (*self.model, *self.optimizer), strict=True):
            variable.assign(value)
        if initial_rate is not None and initial_rate != self.initial_rate:
            set_learning_rate(model, initial_rate)

    def write(self, folder: Path) -> None:
        """Write the file; a crash at any moment leaves the old one or none, never a part."""
        head = {k: v for k, v in _fields(self).items() if k not in ("model", "optimizer")}
        arrays = [*self.model, *self.optimizer]
        head |= {
            "format": _FORMAT,
            "num_model": len(self.model),
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
            CheckpointError: It is missing, truncated, or of another format.
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
            raise CheckpointError(f"{path} is not a whole checkpoint: {error}") from error
        split = head["num_model"]
        return cls(
            model=arrays[:split],
            optimizer=arrays[split:],
            epoch=head["epoch"],
            seed=head["seed"],
            config=head["config"],
            initial_rate=head["initial_rate"],
            callbacks=head["callbacks"],
            names=head["names"],
            untold=head.get("untold"),
        )

    def _check_fits(self, variables: Sequence[tuple[str, tuple[int, ...]]]) -> None:
        """Refuse variables (path and shape, model's before optimizer's) that are others."""
        stored = [array.shape for array in (*self.model, *self.optimizer)]
        if len(stored) != len(variables):
            raise CheckpointError(
                f"the checkpoint holds {len(stored)} variables, the model and its optimizer have "
                f"{len(variables)}: it was saved by a trial of another structure (another layer, "
                "width or optimizer)"
            )
        for (name, shape), other, old in zip(variables, stored, self.names, strict=True):
            if shape != other:
                raise CheckpointError(
                    f"variable {name} has shape {shape}, but the checkpoint holds {other} "
                    f"({old}): it was saved by a trial of another structure"
                )


def _fields(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the fields without copying the arrays."""
    return {name: getattr(checkpoint, name) for name in Checkpoint.__dataclass_fields__}


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    return repr(value)


def _storable(array: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """Return the bytes of a type that NumPy does not know (bfloat16), other arrays as they are."""
    return array if array.dtype.isbuiltin == 1 else array.view(f"V{array.dtype.itemsize}")


def _restored(array: "np.ndarray[Any, Any]", dtype: str) -> "np.ndarray[Any, Any]":
    if str(array.dtype) == dtype:
        return array
    import ml_dtypes  # comes with TensorFlow; only half-precision models need it

    return array.view(getattr(ml_dtypes, dtype))
