"""Conversion of Ray Tune domains to search spaces.

Ray's ``randint`` and ``lograndint`` exclude the upper end, ``qrandint`` includes it; Ray's grids
are the multiples of ``q``, those of a space start at ``low``.
"""

from collections.abc import Mapping
from typing import Any

from tune_tf.errors import ErrorDetail, InvalidSettingsError, adding_errors_to
from tune_tf.space.parameter import Choice, Constant, Float, Int, Parameter
from tune_tf.space.paths import SEPARATOR, dotted, flatten, name_error


def from_ray(config: Mapping[str, Any]) -> dict[str, Parameter]:
    """Return parameters by path from the nested ``config`` of ``tune.run``.

    Raises:
        InvalidSettingsError: A domain has no counterpart.
    """
    parameters = {}
    errors = [ErrorDetail("", text) for name in config if (text := name_error(name))]
    for path, value in flatten(config).items():
        with adding_errors_to(errors, dotted(path)):
            if path.endswith(f"{SEPARATOR}grid_search"):
                raise InvalidSettingsError(
                    f"is no range or choice: write tune.choice({value!r}), with the sampler 'grid' "
                    "for each option once"
                )
            parameters[path] = from_domain(value)
    if errors:
        raise InvalidSettingsError(errors)
    return parameters


def from_domain(domain: Any) -> Parameter:
    """Return the parameter of a Ray domain; a constant for any other value.

    Raises:
        InvalidSettingsError: The domain has no counterpart.
    """
    from ray.tune.search import sample

    within = domain.categories if isinstance(domain, sample.Categorical) else domain
    if isinstance(within, list | tuple):
        parts = flatten({str(i): part for i, part in enumerate(within)})
        if any(isinstance(part, sample.Domain) for part in parts.values()):
            raise InvalidSettingsError(
                "holds domains, which has no counterpart: give each domain a name of its own, with "
                "`when` if it depends on a choice"
            )
    if not isinstance(domain, sample.Domain):
        return Constant(domain)
    if isinstance(domain, sample.Categorical):
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
