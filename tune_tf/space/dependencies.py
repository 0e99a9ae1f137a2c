"""Dependencies between conditional parameters."""

from collections.abc import Iterable, Mapping

from tune_tf.errors import ErrorDetail, did_you_mean
from tune_tf.space.condition import Condition
from tune_tf.space.parameter import Parameter
from tune_tf.space.paths import dotted


def condition_errors(
    parameters: Mapping[str, Parameter], unjudged: dict[str, Condition] | None = None
) -> list[ErrorDetail]:
    """Return the errors of the conditions of parameters by path.

    ``unjudged`` has the conditions of parameters that are invalid for other reasons.
    """
    errors = []
    unjudged = unjudged or {}
    conditions = {path: parameter.condition for path, parameter in parameters.items()} | unjudged
    known = list(conditions)
    for path, condition in conditions.items():
        for parent, allowed in condition.items():
            where = dotted(path)
            if parent in unjudged:
                continue
            if parent not in parameters:
                names = ", ".join(map(dotted, known))
                near = did_you_mean(dotted(parent), map(dotted, known))
                errors.append(
                    ErrorDetail(
                        where,
                        f"`when` names {dotted(parent)!r}, which is not a parameter{near}; "
                        f"the parameters are {names}",
                    )
                )
                continue
            errors.extend(
                ErrorDetail(where, f"`when` can never hold: {dotted(parent)!r} {text}")
                for value in allowed
                if (text := parameters[parent].error_for(value))
            )
    errors.extend(_cycle_errors(parameters))
    return errors


def _cycle_errors(parameters: Mapping[str, Parameter]) -> list[ErrorDetail]:
    errors = []
    done: set[str] = set()

    def visit(path: str, above: list[str]) -> None:
        if path in above:
            ring = [*above[above.index(path) :], path]
            text = " -> ".join(map(dotted, ring))
            errors.append(
                ErrorDetail(dotted(path), f"`when` forms a cycle, {text}: remove one of them")
            )
        elif path not in done:
            for parent in _parents(parameters, path):
                visit(parent, [*above, path])
            done.add(path)

    for path in parameters:
        visit(path, [])
    return errors


def in_dependency_order(parameters: Mapping[str, Parameter]) -> dict[str, Parameter]:
    """Sort parameters stably so that each comes after those that it depends on."""
    ordered: dict[str, Parameter] = {}

    def visit(path: str) -> None:
        if path not in ordered:
            for parent in _parents(parameters, path):
                visit(parent)
            ordered[path] = parameters[path]

    for path in parameters:
        visit(path)
    return ordered


def ancestors(parameters: Mapping[str, Parameter], path: str) -> list[str]:
    """Return the paths that a parameter depends on, directly or indirectly."""
    found: dict[str, None] = {}

    def visit(path: str) -> None:
        for parent in _parents(parameters, path):
            if parent not in found:
                found[parent] = None
                visit(parent)

    visit(path)
    return list(found)


def _parents(parameters: Mapping[str, Parameter], path: str) -> Iterable[str]:
    return [parent for parent in parameters[path].condition if parent in parameters]
