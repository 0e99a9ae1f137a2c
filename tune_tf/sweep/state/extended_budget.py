"""A larger budget for a sweep that has ended or was interrupted."""

from collections.abc import Mapping
from typing import Any

from tune_tf.config import BudgetSettings
from tune_tf.errors import ErrorDetail, InvalidSettingsError, near_ones, one_of


def extended_budget(
    budget: BudgetSettings, changes: Mapping[str, Any], *, num_trials: int = 0
) -> BudgetSettings:
    """Return a budget with other limits.

    Args:
        budget: The budget.
        changes: Limits by name: a number or None in place of what there is, or a text like
            ``"+20"`` for that much more.
        num_trials: Trials that there are already.

    Raises:
        InvalidSettingsError: With all faults; also where nothing would change.
    """
    faults = []
    values = budget.model_dump()
    for name, change in changes.items():
        if name not in values:
            known = list(values)
            text = f"must be {one_of(known)}, not {name!r}{near_ones(name, known)}"
            faults.append(ErrorDetail("budget", text))
            continue
        try:
            values[name] = _changed(values[name], change)
        except ValueError as error:
            faults.append(ErrorDetail(name, str(error)))
    if faults:
        raise InvalidSettingsError(faults)
    made = BudgetSettings.from_dict(values)
    if made == budget:
        raise InvalidSettingsError(
            [
                ErrorDetail(
                    "budget", "is as it was: name what there is to be more of, like num_samples +20"
                )
            ]
        )
    if made.num_samples < num_trials:
        text = f"must be at least {num_trials}, as there are so many trials, not {made.num_samples}"
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
                f"must be a number, '+' and a number for so much more, or none, not {change!r}"
            ) from None
    if not change.startswith("+"):
        return number
    if value is None:
        raise ValueError(f"has no limit, which {change!r} could be added to: give a number")
    return value + number
