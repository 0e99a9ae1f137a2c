"""Recording of the arguments that a hypermodel's ``fit`` passes to ``keras.Model.fit``."""

import inspect
from collections.abc import Callable
from types import SimpleNamespace
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
    import keras  # late: loads TensorFlow

    calls = []

    def record(*args: Any, **kwargs: Any) -> Any:
        calls.append(inspect.signature(keras.Model.fit).bind(model, *args, **kwargs).arguments)
        return model

    model = SimpleNamespace(fit=record)
    try:
        returned = fit(model)
        if returned is not model or len(calls) > 1:
            raise TypeError(f"it returns {returned!r} after {len(calls)} call(s) of model.fit")
        if unsupported := [name for name in _NO_COUNTERPART if calls[0].get(name)]:
            raise TypeError(
                f"model.fit gets {', '.join(unsupported)}, which has no counterpart: a trial "
                "trains and validates on all rows in each of the sweep's `epochs`; put validation "
                "rows into Data(validation=...) and leave the rest out"
            )
    except Exception as error:
        text = f"the fit of the hypermodel raised {type(error).__name__}: {error}; {_REMEDY}"
        raise WorkloadError(text) from error
    return calls[0]
