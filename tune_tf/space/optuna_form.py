"""Conversion of search spaces to Optuna."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tune_tf.errors import InvalidSettingsError
from tune_tf.space.hashable import hashable
from tune_tf.space.parameter import Choice, Constant, Float, Int, Parameter

if TYPE_CHECKING:
    import optuna

    from tune_tf.space.search_space import SearchSpace

Label = None | bool | int | float | str
"""Types of a categorical choice that Optuna can store."""


@dataclass(frozen=True)
class OptunaSpace:
    """Define-by-run function that asks an Optuna trial for a config of a search space.

    Only active parameters are suggested, in dependency order, under their path.

    Samplers that need vectors of one length (CMA-ES, Gaussian processes, NSGA, quasi-random
    sequences) silently draw a parameter that some trials lack at random and never learn it. For
    these, ``dense`` suggests every parameter in every trial; the config still omits inactive ones.

    Raises:
        InvalidSettingsError: An option has no text that is stable between runs.
    """

    space: "SearchSpace"
    dense: bool = False

    def __post_init__(self) -> None:
        """Reject options that cannot be stored."""
        self.space.distributions()

    def __call__(self, trial: "optuna.trial.BaseTrial") -> dict[str, Any]:
        """Return the flat config that Optuna suggests, with constants."""
        return self.config(partial(suggest, trial))

    def config(self, draw: Callable[[str, Any], Any]) -> dict[str, Any]:
        """Return the flat config of values drawn by path and distribution, with constants."""
        values: dict[str, Any] = {}
        for path, parameter in self.space.parameters.items():
            active = parameter.condition.holds(values)
            if not (active or self.dense):
                continue
            if isinstance(parameter, Constant):
                value = parameter.value
            else:
                value = draw(path, to_distribution(parameter))
            if isinstance(parameter, Choice):
                value = option_of(value, parameter.options)
            if active:
                values[path] = value
        return values


def suggest(trial: "optuna.trial.BaseTrial", path: str, kind: Any) -> Any:
    """Ask an Optuna trial for a parameter of a distribution."""
    from optuna import distributions

    if isinstance(kind, distributions.CategoricalDistribution):
        return trial.suggest_categorical(path, kind.choices)
    if isinstance(kind, distributions.IntDistribution):
        return trial.suggest_int(path, kind.low, kind.high, step=kind.step, log=kind.log)
    return trial.suggest_float(path, kind.low, kind.high, step=kind.step, log=kind.log)


def to_distribution(parameter: Parameter) -> "optuna.distributions.BaseDistribution":
    """Return the Optuna distribution of a parameter other than a constant."""
    from optuna import distributions  # late: the vocabulary loads no framework

    match parameter:
        case Float(low, high, log=log, step=step):
            return distributions.FloatDistribution(low, high, log=log, step=step)
        case Int(low, high, log=log, step=step):
            return distributions.IntDistribution(low, high, log=log, step=step)
        case Choice(options):
            return distributions.CategoricalDistribution(labels(options))
    raise TypeError(f"{type(parameter).__name__} has no Optuna distribution")


def labels(options: Sequence[Any]) -> list[Label]:
    """Return the value that Optuna stores for each option.

    None, bool, int, float and str are stored as they are. Any other option becomes a readable text
    that is the same in every process, so that a study can be resumed.

    Raises:
        InvalidSettingsError: An option has no such text.
    """
    plain = (bool, int, float, str, type(None))
    names = [each if isinstance(each, plain) else _text(each) for each in options]
    if len(set(names)) < len(names):  # an option is the text of another one
        return [f"{index}: {name}" for index, name in enumerate(names)]
    return names


def stored_value(value: Any, parameter: Parameter) -> Any:
    """Return what Optuna stores for a value of a parameter; an invalid option itself."""
    if isinstance(parameter, Choice) and parameter.error_for(value) is None:
        keys = [hashable(option) for option in parameter.options]
        return labels(parameter.options)[keys.index(hashable(value))]
    return value


def value_of(stored: Any, parameter: Parameter) -> Any:
    """Return the value of a parameter that Optuna stores in this form; of a constant, its value."""
    match parameter:
        case Constant(value):
            return value
        case Choice(options):
            return option_of(stored, options)
    return stored


def option_of(label: Label, options: Sequence[Any]) -> Any:
    """Return the option that belongs to a label of :func:`labels`."""
    return options[labels(options).index(label)]


def _text(option: object) -> str:
    if hasattr(option, "__qualname__") and hasattr(option, "__module__"):
        text = f"{option.__module__}.{option.__qualname__}"
        stable = "<" not in text
    else:
        text = repr(option)
        stable = " at 0x" not in text and " object at " not in text
    if not stable:
        raise InvalidSettingsError(
            f"option {option!r} cannot be stored by Optuna: its text differs from run to run; "
            "search a name for it, and look it up in build_model"
        )
    return text
