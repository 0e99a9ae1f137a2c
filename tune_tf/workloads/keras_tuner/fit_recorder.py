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
    *("epochs", "initial_epoch", "steps_per_epoch"),
    *("validation_split", "validation_steps", "validation_freq"),
)


class FitRecorder:
    """Stand-in for the model in ``HyperModel.fit`` that records the arguments of its ``fit``.

    ``HyperModel.fit`` may choose batch size, row order and prepared inputs, which the trial's
    training loop then uses. Everything else is refused.
    """

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self.arguments: dict[str, Any] = {}

    def fit(self, *args: Any, **kwargs: Any) -> Any:
        """Record the arguments of ``keras.Model.fit``; return the recorder.

        Raises:
            WorkloadError: An argument does not exist, or has no counterpart in a trial.
        """
        import keras  # late: loads TensorFlow

        if self.arguments:
            raise WorkloadError(f"{self._owner}: fit calls model.fit several times; {_REMEDY}")
        try:
            arguments = inspect.signature(keras.Model.fit).bind(self, *args, **kwargs).arguments
        except TypeError as error:
            raise WorkloadError(
                f"{self._owner}: keras.Model.fit {error}; arguments of a tuner are those of "
                "tune_tf.search"
            ) from None
        if unsupported := [name for name in _NO_COUNTERPART if arguments.get(name)]:
            raise WorkloadError(
                f"{self._owner}: fit passes {', '.join(unsupported)} to model.fit, which has no "
                "counterpart: a trial trains and validates on all rows in each of the sweep's "
                "`epochs`; put validation rows into Data(validation=...) and leave the rest out"
            )
        self.arguments = arguments
        return self

    def check_returned(self, returned: Any) -> None:
        """Raise WorkloadError if ``HyperModel.fit`` returned anything but ``model.fit(...)``."""
        if returned is not self:
            raise WorkloadError(
                f"{self._owner}: fit returns {returned!r} instead of the result of model.fit; "
                f"{_REMEDY}"
            )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse calls."""
        raise WorkloadError(f"{self._owner}: fit calls the model; {_REMEDY}")

    def __getattr__(self, name: str) -> Any:
        """Refuse every attribute that the class does not define."""
        if name.startswith("__"):  # Python looks these up on any object
            raise AttributeError(name)
        whose = ".{} of the result of model.fit" if vars(self).get("arguments") else "model.{}"
        raise WorkloadError(f"{self._owner}: fit uses {whose.format(name)}; {_REMEDY}")
