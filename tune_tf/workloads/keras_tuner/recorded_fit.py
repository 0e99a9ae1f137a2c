"""Recording of the arguments that a hypermodel's ``fit`` passes to ``keras.Model.fit``.

``HyperModel.fit`` may choose batch size, row order and prepared inputs. A stand-in for the model
records them, and the trial's training loop uses them.
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from tune_tf.errors import WorkloadError

OWN_LOOP = (
    "only a fit that prepares the arguments of one `return model.fit(...)` can be converted. For "
    "a custom update write a tune_tf.Workload with `train_step`; what keras.Model.fit does itself, "
    'such as batch callbacks or tf.data, works with loop="fit"'
)

_NO_COUNTERPART = (
    *("validation_split", "initial_epoch", "steps_per_epoch", "validation_steps"),
    "validation_freq",
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

    def fit(self, *args: Any, **kwargs: Any) -> "_History":
        """Record the arguments of ``keras.Model.fit`` except ``verbose``.

        Raises:
            WorkloadError: An argument has no counterpart in a trial.
        """
        import keras  # late: loads TensorFlow

        try:
            given = inspect.signature(keras.Model.fit).bind(self, *args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"model.fit {error}") from None
        if given.get("validation_freq") == 1:
            del given["validation_freq"]
        if text := ", ".join(f"{n}={given[n]!r}" for n in _NO_COUNTERPART if given.get(n)):
            raise WorkloadError(
                f"{self._owner}: fit passes {text} to model.fit, which has no counterpart: a "
                "trial trains and validates on all rows every epoch; put the validation rows into "
                "Data(validation=...) and leave the rest out"
            )
        callbacks = given.get("callbacks") or ()
        given["callbacks"] = callbacks if isinstance(callbacks, list | tuple) else (callbacks,)
        kept = {each.name for each in fields(FitArguments)} & given.keys()
        self._taken.append(FitArguments(**{name: given[name] for name in kept}))
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
