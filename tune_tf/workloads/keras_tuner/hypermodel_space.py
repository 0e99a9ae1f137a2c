"""Search space of a KerasTuner hypermodel."""

from collections.abc import Callable
from typing import Any

from tune_tf.errors import ErrorDetail, InvalidSettingsError, WorkloadError
from tune_tf.space import Choice, Constant, Float, Int, Parameter, SearchSpace

_HIGHEST = 1 - 1e-9  # share of the values of a number that are below


def find_hyperparameters(build: Callable[[Any], Any]) -> Any:
    """Return the ``HyperParameters`` that builds declare.

    As a tuner of KerasTuner does, it builds with the defaults and opens each conditional scope. In
    addition it builds with each option of each choice and the highest value of each number, one by
    one, until nothing new appears.

    Args:
        build: Builds with ``HyperParameters``.

    Raises:
        WorkloadError: The build fails with the defaults.
    """
    import keras
    import keras_tuner  # late: loads TensorFlow
    from keras_tuner.engine import hyperparameters as kinds

    found: dict[Any, Any] = {}
    queue: list[dict[str, Any]] = [{}]
    for values in queue:  # which grows meanwhile
        hps = keras_tuner.HyperParameters()
        hps.values = dict(values)
        try:
            with keras.device("cpu:0"):  # the GPUs' memory is the trials'
                build(hps)
        except Exception as error:
            if not values:
                raise WorkloadError(
                    "building the hypermodel with the defaults of all hyperparameters raised "
                    f"{type(error).__name__}: {error}"
                ) from error
        for hp in hps.space:
            scopes = {each.name: tuple(each.values) for each in hp.conditions}
            if found.setdefault((hp.name, tuple(scopes.items())), hp) is hp:
                opened = values | {name: allowed[0] for name, allowed in scopes.items()}
                is_number = isinstance(hp, kinds.Int | kinds.Float)
                ends = [hp.prob_to_value(_HIGHEST)] if is_number else hp.values
                queue += [opened | {hp.name: value} for value in ends if value != hp.default]
    declared = keras_tuner.HyperParameters()
    declared.merge(list(found.values()))
    return declared


def hypermodel_space(hps: Any) -> SearchSpace:
    """Return the search space of ``HyperParameters``; scopes become conditions.

    A name that occurs in several scopes is searched always.

    Raises:
        InvalidSettingsError: A hyperparameter has no counterpart, or a name is declared with
            different values.
    """
    parameters: dict[str, Parameter] = {}
    conditions: dict[str, dict[str, list[Any]]] = {}
    errors = []
    for hp in hps.space:
        when = {each.name: list(each.values) for each in hp.conditions}
        parameter = _parameter(hp)
        if parameters.setdefault(hp.name, parameter) != parameter:
            text = "is declared with different values in several places: give each its own name"
            errors.append(ErrorDetail(hp.name, text))
        if conditions.setdefault(hp.name, when) != when:
            conditions[hp.name] = {}
    if errors:
        raise InvalidSettingsError(errors)
    return SearchSpace(
        {
            name: type(parameter)(**{**vars(parameter), "when": conditions[name] or None})
            for name, parameter in parameters.items()
        }
    )


def _parameter(hp: Any) -> Parameter:
    from keras_tuner.engine import hyperparameters as kinds  # late: loads TensorFlow

    if isinstance(hp, kinds.Fixed):
        return Constant(hp.value)
    if isinstance(hp, kinds.Boolean | kinds.Choice):
        return Choice(list(dict.fromkeys(hp.values)))
    if isinstance(hp, kinds.Int | kinds.Float) and hp.sampling != "reverse_log":
        return _range(hp, Int if isinstance(hp, kinds.Int) else Float)
    text = (
        f"{type(hp).__name__} with sampling={getattr(hp, 'sampling', None)!r} has no counterpart: "
        "use hp.Int or hp.Float with 'linear' or 'log', hp.Choice, hp.Boolean or hp.Fixed"
    )
    raise InvalidSettingsError([ErrorDetail(hp.name, text)])


def _range(hp: Any, make: Any) -> Parameter:
    """Convert an ``hp.Int`` or ``hp.Float``.

    KerasTuner documents ``max_value`` of a stepped float as included, but its samplers miss it if
    ``(max_value - min_value) // step`` rounds down (0 to 1 by 0.2). Here it is included.
    """
    low, high, step = hp.min_value, hp.max_value, hp.step
    if hp.sampling == "log" and step is not None:
        # Powers of a step cannot be expressed as a range.
        number = int if make is Int else float
        return Choice(list(dict.fromkeys(map(number, hp.values))))
    if step is None or low + step > high:
        return make(low, high if step is None else low, log=hp.sampling == "log")
    num_steps = int((high - low) / step + 1e-9)
    return make(low, low + num_steps * step, step=step)
