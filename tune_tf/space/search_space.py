"""Search space of a sweep: parameters, groups and conditions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tune_tf.errors import ErrorDetail, InvalidSettingsError, adding_errors_to, did_you_mean
from tune_tf.space.condition import in_dependency_order
from tune_tf.space.declaration import Declarations, space_section
from tune_tf.space.parameter import Constant, Parameter
from tune_tf.space.paths import SEPARATOR, dotted, flatten, nest

if TYPE_CHECKING:
    import numpy as np
    import optuna


@dataclass(frozen=True)
class SearchSpace:
    """Parameters by name, in groups, some of them conditional.

    Args:
        parameters: Parameter by name, as an object or as in a sweep file, ``{"choice": [1, 2]}``.
            A mapping without a kind is a group of parameters; a number, text, boolean, date or None
            is a constant. Anything else, such as a list, is refused: ``Constant`` holds it.
            A ``when`` refers to other parameters by their path from the root.

    Attributes:
        parameters: Parameter by path, such as ``optimizer/learning_rate``, each after the
            parameters that it depends on.

    Raises:
        InvalidSettingsError: A name or condition is invalid.
    """

    parameters: Mapping[str, Any]

    def __post_init__(self) -> None:
        """Validate names and conditions."""
        read = Declarations.read(self.parameters)
        ordered, condition_errors = in_dependency_order(read.parameters, read.invalid)
        errors = [*read.errors, *condition_errors]
        with adding_errors_to(errors):
            nest(read.parameters)  # refuses what is a parameter and a group
        if errors:
            raise InvalidSettingsError(errors)
        object.__setattr__(self, "parameters", ordered)

    @property
    def conditional(self) -> bool:
        """Whether some parameter is conditional."""
        return any(parameter.when for parameter in self.parameters.values())

    def to_dict(self) -> dict[str, Any]:
        """Return the ``space`` section that a sweep file has."""
        return space_section(self.parameters)

    @classmethod
    def from_ray(cls, config: Mapping[str, Any]) -> "SearchSpace":
        """Return the space of a nested mapping of Ray domains, as given to ``tune.run``.

        Raises:
            InvalidSettingsError: A domain has no counterpart, for example ``randn``.
        """
        from tune_tf.space.ray_form import from_ray

        return cls(from_ray(config))

    def distributions(self) -> "dict[str, optuna.distributions.BaseDistribution]":
        """Return the Optuna distribution of each parameter except constants, by path."""
        from tune_tf.space.optuna_form import to_distribution

        found, errors = {}, list[ErrorDetail]()
        for path, parameter in self.parameters.items():
            with adding_errors_to(errors, dotted(path)):
                if not isinstance(parameter, Constant):
                    found[path] = to_distribution(parameter)
        if errors:
            raise InvalidSettingsError(errors)
        return found

    def sample(self, rng: "np.random.Generator") -> dict[str, Any]:
        """Return a random nested config."""
        values: dict[str, Any] = {}
        for path, parameter in self.parameters.items():
            if parameter.condition.holds(values):
                values[path] = parameter.draw(rng)
        return nest(values)

    def active(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return a nested config without the values of inactive parameters."""
        flat = flatten(config, self.parameters)
        values: dict[str, Any] = {}
        for path, parameter in self.parameters.items():
            if path in flat and parameter.condition.holds(values):
                values[path] = flat[path]
        unknown = {path: value for path, value in flat.items() if path not in self.parameters}
        return nest({**values, **unknown})

    def validate(self, config: Mapping[str, Any]) -> list[ErrorDetail]:
        """Return the errors of a nested config; empty if the space contains it.

        None is valid for an inactive parameter, because Ray cannot omit a value.
        """
        flat = flatten(config, self.parameters)
        groups = {path.rsplit(SEPARATOR, 1)[0] for path in self.parameters if SEPARATOR in path}
        errors = [
            ErrorDetail(dotted(path), _unknown(path, self.parameters))
            for path, value in flat.items()
            if path not in self.parameters and not (value == {} and path in groups)
        ]
        values: dict[str, Any] = {}
        for path, parameter in self.parameters.items():
            if not parameter.condition.holds(values):
                if flat.get(path) is not None:
                    text = f"is inactive but given as {flat[path]!r}: leave it out"
                    errors.append(ErrorDetail(dotted(path), text))
            elif path not in flat:
                errors.append(ErrorDetail(dotted(path), "is missing"))
            else:
                values[path] = flat[path]
                if text := parameter.error_for(flat[path]):
                    errors.append(ErrorDetail(dotted(path), text))
        return errors


def _unknown(path: str, parameters: Mapping[str, Parameter]) -> str:
    paths = [dotted(name) for name in parameters]
    return (
        f"is not a parameter{did_you_mean(dotted(path), paths)}; "
        f"the parameters are {', '.join(paths)}"
    )
