"""Recording of the arguments that a hypermodel's ``fit`` passes to ``keras.Model.fit``.

``HyperModel.fit`` may choose batch size, row order and prepared inputs. A stand-in for the model
records them, and the trial's training loop uses them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tune_tf.errors import WorkloadError

OWN_LOOP = (
    "only a fit that prepares the arguments of one `return model.fit(...)` can be converted. For "
    "a custom update write a tune_tf.Workload with `train_step`; what keras.Model.fit does itself, "
    'such as batch callbacks or tf.data, works with loop="fit"'
)


@dataclass(frozen=True)
class FitArguments:
    """Arguments of ``keras.Model.fit``, except those that the trial determines.

    ``batch_size`` (global) and ``epochs`` are None if not given.
    """

    x: Any = None
    y: Any = None
    sample_weight: Any = None
    validation_data: Any = None
    class_weight: Mapping[int, float] | None = None
    batch_size: int | None = None
    epochs: int | None = None
    shuffle: bool = True
    callbacks: Sequence[Any] = ()


class FitRecorder:
    """Stand-in for the model in ``HyperModel.fit`` that records the arguments of its ``fit``."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._taken: list[FitArguments] = []
        self._history = _History(owner)

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int | None = None,
        verbose: Any = "auto",
        callbacks: Any = None,
        validation_split: float = 0.0,
        validation_data: Any = None,
        shuffle: bool = True,
        class_weight: Mapping[int, float] | None = None,
        sample_weight: Any = None,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        validation_steps: int | None = None,
        validation_batch_size: int | None = None,
        validation_freq: Any = 1,
    ) -> "_History":
        """Record the arguments of ``keras.Model.fit`` except ``verbose``.

        Raises:
            WorkloadError: An argument has no counterpart in a trial.
        """
        without = {
            "validation_split": validation_split,
            "initial_epoch": initial_epoch,
            "steps_per_epoch": steps_per_epoch,
            "validation_steps": validation_steps,
            "validation_freq": None if validation_freq == 1 else validation_freq,
        }
        given = ", ".join(f"{name}={value!r}" for name, value in without.items() if value)
        if given:
            raise WorkloadError(
                f"{self._owner}: fit passes {given} to model.fit, which has no counterpart: a "
                "trial trains and validates on all rows every epoch; put the validation rows into "
                "Data(validation=...) and leave the rest out"
            )
        several = isinstance(callbacks, list | tuple)
        self._taken.append(
            FitArguments(
                x=x,
                y=y,
                sample_weight=sample_weight,
                validation_data=validation_data,
                class_weight=class_weight,
                batch_size=None if batch_size is None else int(batch_size),
                epochs=None if epochs is None else int(epochs),
                shuffle=bool(shuffle),
                callbacks=tuple(callbacks) if several else (callbacks,) if callbacks else (),
            )
        )
        return self._history

    def taken(self, returned: Any) -> FitArguments:
        """Return the recorded arguments, given the return value of ``HyperModel.fit``.

        Raises:
            WorkloadError: ``HyperModel.fit`` did more than return the result of one ``model.fit``.
        """
        if len(self._taken) != 1:
            times = "never" if not self._taken else f"{len(self._taken)} times"
            raise WorkloadError(f"{self._owner}: fit calls model.fit {times}; {OWN_LOOP}")
        if returned is not self._history:
            raise WorkloadError(
                f"{self._owner}: fit returns {returned!r} instead of the result of model.fit; a "
                f"trial reports every metric, and the objective names one; {OWN_LOOP}"
            )
        return self._taken[0]

    def __getattr__(self, name: str) -> Any:
        """Reject every attribute but ``fit``."""
        if name.startswith("__"):  # Python looks these up on any object
            raise AttributeError(name)
        raise WorkloadError(f"{self._owner}: fit uses model.{name}; {OWN_LOOP}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Reject calls."""
        raise WorkloadError(f"{self._owner}: fit calls the model; {OWN_LOOP}")


class _History:
    """Stand-in for the return value of ``keras.Model.fit``."""

    def __init__(self, owner: str) -> None:
        self._owner = owner

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise WorkloadError(
            f"{self._owner}: fit uses .{name} of the result of model.fit; a trial reports every "
            f"metric, and the objective names one; {OWN_LOOP}"
        )
