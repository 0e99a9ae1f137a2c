"""Conversion between search spaces and Ray Tune domains.

Ray's ``randint`` and ``lograndint`` exclude the upper end, ``qrandint`` includes it; Ray's grids
are the multiples of ``q``, those of a space start at ``low``. The conversions are exact in both
directions at both ends.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tune_tf.errors import ErrorDetail, InvalidSettingsError, adding_errors_to
from tune_tf.space.parameter import Choice, Constant, Float, Int, Parameter
from tune_tf.space.paths import dotted, flatten, join, name_error, nest

if TYPE_CHECKING:
    from tune_tf.space.search_space import SearchSpace

_MAX_LISTED = 100_000
"""Maximum number of values in a grid that Ray can only express as a list."""

_CONDITIONAL = (
    "has a condition, which Ray's domains cannot express: pass the space to OptunaSearcher, or "
    "to_optuna() to OptunaSearch"
)


def to_domain(parameter: Parameter) -> Any:
    """Return the Ray domain of a parameter without its condition; a constant is its value."""
    from ray import tune  # late: takes two seconds to import

    match parameter:
        case Float(low, high, log=True):
            return tune.loguniform(low, high)
        case Float(low, high, step=None):
            return tune.uniform(low, high)
        case Float(low, high, step=float(step)):
            if Float(0, step, step=step).error_for(abs(low) % step) is None:
                return tune.quniform(low, high, step)
            return _grid_as_choice(parameter)
        case Int(low, high, log=True):
            return tune.lograndint(low, high + 1)
        case Int(low, high, step=1):
            return tune.randint(low, high + 1)
        case Int(low, high, step=step):
            return tune.qrandint(low, high, step) if low % step == 0 else _grid_as_choice(parameter)
        case Choice(options):
            return tune.choice(list(options))
        case Constant(value):
            return value
    raise TypeError(f"{type(parameter).__name__} has no Ray domain")


def _grid_as_choice(parameter: Float | Int) -> Any:
    """Return a Ray choice of all values of a grid that does not start at a multiple of its step."""
    from ray import tune

    low, step, count = parameter.low, parameter.step or 0, parameter.num_steps + 1
    if count > _MAX_LISTED:
        raise InvalidSettingsError(
            f"a grid of {count} values from {low!r} by {step!r} cannot be expressed in Ray, "
            "whose grids are the multiples of the step: start at one of those"
        )
    values = [low + index * step for index in range(count)]
    values[-1] = parameter.high
    return tune.choice(values)


def to_ray(space: "SearchSpace") -> dict[str, Any]:
    """Return the nested ``config`` of ``tune.run``; see :meth:`SearchSpace.to_ray`."""
    domains = {}
    errors: list[ErrorDetail] = []
    for path, parameter in space.parameters.items():
        with adding_errors_to(errors, dotted(path)):
            if parameter.when is not None:
                raise InvalidSettingsError(_CONDITIONAL)
            domains[path] = to_domain(parameter)
    if errors:
        raise InvalidSettingsError(errors)
    return nest(domains)


def from_ray(config: Mapping[str, Any]) -> dict[str, Parameter]:
    """Return parameters by path from the nested ``config`` of ``tune.run``.

    Raises:
        InvalidSettingsError: A domain has no counterpart.
    """
    parameters = {}
    errors: list[ErrorDetail] = []

    def read(group: Mapping[Any, Any], prefix: str) -> None:
        for name, value in group.items():
            path = join(prefix, str(name))
            if text := name_error(name) or _inexpressible(value):
                errors.append(ErrorDetail(dotted(path), text))
            elif isinstance(value, Mapping) and value:
                read(value, path)
            else:
                with adding_errors_to(errors, dotted(path)):
                    parameters[path] = from_domain(value)

    read(config, "")
    if errors:
        raise InvalidSettingsError(errors)
    return parameters


def _inexpressible(value: object) -> str | None:
    """Return why a value in Ray's ``config`` is no parameter, or None."""
    from ray.tune.search.sample import Domain

    if isinstance(value, Mapping) and "grid_search" in value:
        return (
            f"is a grid_search, which is no range or choice: write "
            f"tune.choice({value['grid_search']!r}), with the sampler 'grid' for each option once"
        )
    if isinstance(value, list | tuple) and any(isinstance(each, Domain) for each in value):
        return (
            "is a list that contains domains, which has no counterpart: give each domain a name "
            "of its own"
        )
    return None


def from_domain(domain: Any) -> Parameter:
    """Return the parameter of a Ray domain; a constant for any other value.

    Raises:
        InvalidSettingsError: The domain has no counterpart.
    """
    from ray.tune.search import sample

    if not isinstance(domain, sample.Domain):
        return Constant(domain)
    if isinstance(domain, sample.Categorical):
        options = flatten({str(i): option for i, option in enumerate(domain.categories)})
        if any(isinstance(option, sample.Domain) for option in options.values()):
            raise InvalidSettingsError(
                "is a choice among domains, which has no counterpart: give each domain a name of "
                "its own, with `when` on the choice"
            )
        return Choice(domain.categories)
    sampler, step = domain.get_sampler(), None
    if isinstance(sampler, sample.Quantized):
        sampler, step = sampler.get_sampler(), sampler.q
    log = isinstance(sampler, sample.LogUniform)
    is_uniform = isinstance(sampler, sample.Uniform | sample.LogUniform)
    if is_uniform and isinstance(domain, sample.Float):
        return Float(domain.lower, domain.upper, log=log, step=step)
    if is_uniform and isinstance(domain, sample.Integer):
        if step is None or step == 1:
            return Int(domain.lower, domain.upper - 1, log=log)
        low, high = -(-domain.lower // step) * step, domain.upper // step * step
        return Int(low, high, log=log, step=step)
    raise InvalidSettingsError(
        f"Ray's {type(domain).__name__}({domain.domain_str}) with {sampler} sampling has no "
        "counterpart: use uniform, quniform, loguniform, randint, qrandint, lograndint or "
        "choice"
    )
