"""Changed settings of a sweep: edits of its file, and an extended budget."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from tune_tf.config import BudgetSettings, SweepConfig
from tune_tf.errors import (
    ErrorDetail,
    InvalidSettingsError,
    SweepConflictError,
    did_you_mean,
    one_of,
)
from tune_tf.space.paths import SEPARATOR, flatten

_CHANGEABLE = (
    "workload",
    "data",
    "parallelism",
    "resources",
    "budget",
    "mlflow",
    "max_concurrent_trials",
    "max_failures",
    "oom_retries",
    "checkpoint_interval_s",
    "share_frozen",
)
"""Settings that a resume reads again; a section includes all its settings."""
_FIXED = ("parallelism.kind", "mlflow.tracking_uri", "mlflow.experiment_name")
"""Fixed settings in these sections."""
_FIXED_IF_REPRODUCIBLE = (
    "searcher",
    "parallelism",
    "budget",
    "share_frozen",
)
"""Settings that decisions and results of a reproducible sweep follow from."""
NOT_EXTENDABLE = (
    "a reproducible sweep cannot be extended: its decisions follow from its budget, too, and those "
    "so far would have been others; start another sweep with the larger budget, or one with "
    "searcher.warm_start_from"
)


def changes_between(old: SweepConfig, new: SweepConfig) -> dict[str, str]:
    """Return text like ``8 -> 20`` by dotted path of each setting that differs, in file order."""
    old_values, new_values = _by_path(old), _by_path(new)
    return {
        name: f"{_value_text(old_values.get(name))} -> {_value_text(new_values.get(name))}"
        for name in {**old_values, **new_values}
        if old_values.get(name) != new_values.get(name)
    }


def check_changes(
    sweep_id: str, changes: Mapping[str, str], new: SweepConfig, *, allowed: bool
) -> None:
    """Raise SweepConflictError for changes that are not allowed or that a resume cannot apply."""
    refused = [name for name in changes if not _is_changeable(name, new)]
    if allowed and not refused:
        return
    lines = [
        f"  {name}: {values}{'   (fixed)' if name in refused else ''}"
        for name, values in changes.items()
    ]
    if not refused:
        end = "apply them with --allow-changes, or undo them"
    else:
        which = "that one cannot" if len(refused) == 1 else f"{len(refused)} of them cannot"
        end = f"{which} be changed any more: undo it, or start another sweep"
        if any(name.startswith("space.") for name in refused):
            end += " with searcher.warm_start_from, which takes what the two spaces share"
    text = "\n".join(lines)
    raise SweepConflictError(f"sweep.yaml of {sweep_id} was edited since it ran:\n{text}\n{end}")


def _is_changeable(name: str, new: SweepConfig) -> bool:
    """Return whether a resume can apply a change of a setting."""
    section = name.partition(".")[0]
    if new.reproducible and section in _FIXED_IF_REPRODUCIBLE:
        return False
    fixed = name in _FIXED or name == "mlflow"  # on or off
    return not fixed and any(name == it or name.startswith(f"{it}.") for it in _CHANGEABLE)


def _by_path(config: SweepConfig) -> dict[str, Any]:
    return {
        path.replace(SEPARATOR, "."): value for path, value in flatten(config.to_dict()).items()
    }


def _value_text(value: Any) -> str:
    if value is None:
        return "none"
    return value if isinstance(value, str) else repr(value)


def extended_budget(
    budget: BudgetSettings, changes: Mapping[str, Any], *, num_trials: int = 0, num_epochs: int = 0
) -> BudgetSettings:
    """Return a budget with the changes of :func:`tune_tf.extend_sweep`, if they are valid.

    It must differ, and have room beside what there is. Raises InvalidSettingsError.
    """
    errors = []
    values = budget.model_dump()
    for name, change in changes.items():
        if name not in values:
            names = list(values)
            text = f"must be {one_of(names)}, not {name!r}{did_you_mean(name, names)}"
            errors.append(ErrorDetail("budget", text))
            continue
        try:
            values[name] = _changed(values[name], change)
        except ValueError as error:
            errors.append(ErrorDetail(name, str(error)))
    if errors:
        raise InvalidSettingsError(errors)
    extended = BudgetSettings.from_dict(values)
    if extended == budget:
        raise InvalidSettingsError(
            ErrorDetail("budget", "is unchanged: name what to increase, such as num_samples +20")
        )
    if (limit := extended.num_samples) < num_trials:
        text = f"must be at least {num_trials}, the number of trials so far, not {limit}"
        raise InvalidSettingsError(ErrorDetail("num_samples", text))
    if extended.epochs is not None and extended.epochs <= num_epochs:
        text = f"must be more than {num_epochs}, the epochs so far, not {extended.epochs}"
        raise InvalidSettingsError(ErrorDetail("epochs", text))
    return extended


def _changed(value: float | None, change: Any) -> Any:
    if not isinstance(change, str):
        return change
    if change == "none":
        return None
    try:
        number = float(change)
        with suppress(ValueError):
            number = int(change)
    except ValueError:
        text = f"must be a number, '+' and a number to add, or none, not {change!r}"
        raise ValueError(text) from None
    if not change.startswith("+"):
        return number
    if value is None:
        raise ValueError(f"has no limit that {change!r} could be added to: give a number")
    return value + number
