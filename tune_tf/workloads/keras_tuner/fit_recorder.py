"""Recording of the arguments that a hypermodel's ``fit`` passes to ``keras.Model.fit``."""

import inspect
from collections.abc import Callable
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


def fit_arguments(fit: Callable[[Any], Any]) -> dict[str, Any]:
    """Return the arguments that ``fit`` passes to ``keras.Model.fit``.

    It may choose batch size, row order and prepared inputs, which the trial's training loop then
    uses. Everything else is refused.

    Args:
        fit: Function of a model that returns what its ``fit`` returns.

    Raises:
        WorkloadError: It does anything else, or an argument has no counterpart in a trial.
    """
    recorder = _FitRecorder()
    try:
        returned = fit(recorder)
        if returned is not recorder:
            raise TypeError(f"it returns {returned!r} instead of the result of model.fit")
    except Exception as error:
        text = f"the fit of the hypermodel raised {type(error).__name__}: {error}; {_REMEDY}"
        raise WorkloadError(text) from error
    return recorder.arguments


class _FitRecorder:
    """Stand-in for the model in ``HyperModel.fit`` that records the arguments of its ``fit``."""

    def __init__(self) -> None:
        self.arguments: dict[str, Any] = {}

    def fit(self, *args: Any, **kwargs: Any) -> Any:
        """Record the arguments of ``keras.Model.fit``; return the recorder."""
        import keras  # late: loads TensorFlow

        if self.arguments:
            raise TypeError("it calls model.fit several times")
        arguments = inspect.signature(keras.Model.fit).bind(self, *args, **kwargs).arguments
        if unsupported := [name for name in _NO_COUNTERPART if arguments.get(name)]:
            raise TypeError(
                f"model.fit gets {', '.join(unsupported)}, which has no counterpart: a trial "
                "trains and validates on all rows in each of the sweep's `epochs`; put validation "
                "rows into Data(validation=...) and leave the rest out"
            )
        self.arguments = arguments
        return self
