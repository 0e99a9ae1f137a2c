"""The schedulers that can be asked for by name."""

from collections.abc import Callable

from ray.tune.schedulers import TrialScheduler

from tune_tf.errors import InvalidSettingsError, near_ones, one_of
from tune_tf.objective import Objective
from tune_tf.schedulers.asha import AshaScheduler
from tune_tf.schedulers.fifo import FifoScheduler
from tune_tf.schedulers.limits import Limits

_KNOWN: dict[str, Callable[[Objective, Limits], TrialScheduler]] = {
    "asha": AshaScheduler,
    "fifo": FifoScheduler,
}


def scheduler(
    name: str,
    objective: Objective,
    *,
    max_t: int = 100,
    grace_period: int = 1,
    reduction_factor: float = 3,
) -> TrialScheduler:
    """Make a Ray Tune scheduler that writes into each trial's last result why it ended.

    Args:
        name: ``"asha"`` or ``"fifo"``.
        objective: The metric that trials are compared by.
        max_t: Iterations after which a trial is complete, unless ``tune.run(stop=...)`` says
            another ``training_iteration``.
        grace_period: Iterations before a trial can be stopped.
        reduction_factor: One in this many trials goes on at each rung.

    Raises:
        InvalidSettingsError: The name is not known, or limits are wrong; all faults at once.
    """
    faults = []
    if name not in _KNOWN:
        known = sorted(_KNOWN)
        faults.append(
            f"unknown scheduler {name!r}: it must be {one_of(known)}{near_ones(name, known)}"
        )
    try:
        limits = Limits(max_t, grace_period, reduction_factor)
    except InvalidSettingsError as error:
        raise InvalidSettingsError([*faults, *error.faults]) from None
    if faults:
        raise InvalidSettingsError(faults)
    return _KNOWN[name](objective, limits)
