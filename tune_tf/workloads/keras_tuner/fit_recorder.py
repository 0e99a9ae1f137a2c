"""Recording of the arguments that a hypermodel's ``fit`` passes to ``keras.Model.fit``."""

import inspect
from typing import Any

from tune_tf.errors import WorkloadError

_REMEDY = (
    "only a fit that prepares the arguments of one `return model.fit(...)` can be converted. A "
    "value of your own to optimize belongs into compile(metrics=[...]); for a custom update write "
    "a tune_tf.Workload with `train_step`; what keras.Model.fit does itself, such as batch "
    'callbacks or tf.data, works with loop="fit"'
)

_NO_COUNTERPART = (
    *("validation_split", "initial_epoch", "steps_per_epoch", "validation_steps"),
    "validation_freq",
)


class _StandIn:
    """Object in place of another, every attribute of which is refused."""

    def __init__(self, refusal: str) -> None:
        self._refusal = refusal

    def __getattr__(self, name: str) -> Any:
        """Refuse every attribute that the class does not define."""
        if name.startswith("__"):  # Python looks these up on any object
            raise AttributeError(name)
        raise WorkloadError(self._refusal.format(name=name))


class FitRecorder(_StandIn):
    """Stand-in for the model in ``HyperModel.fit`` that records the arguments of its ``fit``.

    ``HyperModel.fit`` may choose batch size, row order and prepared inputs, which the trial's
    training loop then uses.
    """

    def __init__(self, owner: str) -> None:
        super().__init__(f"{owner}: fit uses model.{{name}}; {_REMEDY}")
        self._owner = owner
        self._calls: list[dict[str, Any]] = []
        self._history = _StandIn(
            f"{owner}: fit uses .{{name}} of the result of model.fit; a trial reports every "
            f"metric, and the objective names one; {_REMEDY}"
        )

    def fit(self, *args: Any, **kwargs: Any) -> Any:
        """Record the arguments of ``keras.Model.fit``.

        Raises:
            WorkloadError: An argument does not exist, or has no counterpart in a trial.
        """
        import keras  # late: loads TensorFlow

        signature = inspect.signature(keras.Model.fit)
        try:
            arguments = signature.bind(self, *args, **kwargs).arguments
        except TypeError as error:
            raise WorkloadError(f"{self._owner}: keras.Model.fit {error}") from None
        unsupported = [
            f"{name}={arguments[name]!r}"
            for name in _NO_COUNTERPART
            if arguments.get(name) and arguments[name] != signature.parameters[name].default
        ]
        if unsupported:
            raise WorkloadError(
                f"{self._owner}: fit passes {', '.join(unsupported)} to model.fit, which has no "
                "counterpart: a trial trains and validates on all rows every epoch; put the "
                "validation rows into Data(validation=...) and leave the rest out"
            )
        self._calls.append(arguments)
        return self._history

    def recorded(self, returned: Any) -> dict[str, Any]:
        """Return the arguments by name, given the return value of ``HyperModel.fit``.

        Raises:
            WorkloadError: ``HyperModel.fit`` did more than return the result of one ``model.fit``.
        """
        if len(self._calls) != 1:
            times = f"{len(self._calls)} times" if self._calls else "never"
            raise WorkloadError(f"{self._owner}: fit calls model.fit {times}; {_REMEDY}")
        if returned is not self._history:
            raise WorkloadError(
                f"{self._owner}: fit returns {returned!r} instead of the result of model.fit; a "
                f"trial reports every metric, and the objective names one; {_REMEDY}"
            )
        return self._calls[0]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse calls."""
        raise WorkloadError(f"{self._owner}: fit calls the model; {_REMEDY}")
