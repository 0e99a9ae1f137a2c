"""Extension of the budget of an ended or interrupted sweep."""

from collections.abc import Mapping
from typing import Any

from tune_tf.config import BudgetSettings
from tune_tf.errors import ErrorDetail, InvalidSettingsError, did_you_mean, one_of


def extended_budget(
    budget: BudgetSettings, changes: Mapping[str, Any], *, num_trials: int = 0
) -> BudgetSettings:
    """Return a budget with changed limits.

    Args:
        budget: The present budget.
        changes: Limits by name: a number or None replaces the limit, text like ``"+20"`` adds to
            it.
        num_trials: Number of existing trials.

    Raises:
        InvalidSettingsError: Lists all errors; also raised if nothing would change.
    """
    errors = []
    values = budget.model_dump()
    for name, change in changes.items():
        if name not in values:
            known = list(values)
            text = f"must be {one_of(known)}, not {name!r}{did_you_mean(name, known)}"
            errors.append(ErrorDetail("budget", text))
            continue
        try:
            values[name] = _changed(values[name], change)
        except ValueError as error:
            errors.append(ErrorDetail(name, str(error)))
    if errors:
        raise InvalidSettingsError(errors)
    made = BudgetSettings.from_dict(values)
    if made == budget:
        raise InvalidSettingsError(
            [ErrorDetail("budget", "is unchanged: name what to increase, such as num_samples +20")]
        )
    if made.num_samples < num_trials:
        text = f"must be at least {num_trials}, the number of trials so far, not {made.num_samples}"
        raise InvalidSettingsError([ErrorDetail("num_samples", text)])
    return made


def _changed(value: float | None, change: Any) -> Any:
    if not isinstance(change, str):
        return change
    if change == "none":
        return None
    try:
        number = int(change)
    except ValueError:
        try:
            number = float(change)  # type: ignore[assignment]
        except ValueError:
            raise ValueError(
                f"must be a number, '+' and a number to add, or none, not {change!r}"
            ) from None
    if not change.startswith("+"):
        return number
    if value is None:
        raise ValueError(f"has no limit that {change!r} could be added to: give a number")
    return value + number
