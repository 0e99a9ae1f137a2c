"""Schedulers by name."""

from collections.abc import Callable, Sequence
from typing import Any

from tune_tf.config import SchedulerSettings, parse_scheduler_settings
from tune_tf.config.scheduler_settings import (
    AshaSettings,
    AutoSettings,
    BohbSettings,
    FifoSettings,
    FreezeThawSettings,
    HyperbandSettings,
    MedianStoppingSettings,
    PashaSettings,
    Pb2Settings,
    PbtSettings,
    ResourceChangingSettings,
)
from tune_tf.constraint import Constraint
from tune_tf.errors import InvalidSettingsError
from tune_tf.objective import Objective
from tune_tf.schedulers.outcome_mixin import OutcomeMixin
from tune_tf.schedulers.population import PbtScheduler
from tune_tf.schedulers.promotion import PashaScheduler, PromotionAshaScheduler
from tune_tf.schedulers.resource_changing import ResizingScheduler
from tune_tf.schedulers.stopping import (
    AshaScheduler,
    BohbScheduler,
    FifoScheduler,
    HyperbandScheduler,
    MedianStoppingScheduler,
)
from tune_tf.space import SearchSpace

_CLASSES: dict[type[SchedulerSettings], Callable[..., OutcomeMixin]] = {
    FifoSettings: FifoScheduler,
    AshaSettings: AshaScheduler,
    PashaSettings: PashaScheduler,
    HyperbandSettings: HyperbandScheduler,
    BohbSettings: BohbScheduler,
    MedianStoppingSettings: MedianStoppingScheduler,
}
"""Schedulers that need no search space."""


def scheduler(
    name: str,
    objective: Objective,
    *,
    space: SearchSpace | None = None,
    constraints: Sequence[Constraint] = (),
    **settings: Any,
) -> OutcomeMixin | ResizingScheduler:
    """Create a Ray Tune scheduler that records in each trial's last result why it ended.

    Args:
        name: The scheduler, one of :data:`tune_tf.config.SCHEDULERS`.
        objective: The metric that trials are compared by.
        space: The search space, for ``freeze_thaw`` and for schedulers that change parameters:
            ``pbt`` and ``pb2``.
        constraints: Bounds on reported metrics; for ``freeze_thaw``, a trial that violates one
            counts as the worst. The others ignore them.
        settings: The scheduler's settings, as in the ``scheduler`` section of a sweep file; see its
            class in :mod:`tune_tf.config.scheduler_settings`. Every scheduler has ``max_t``, the
            iterations after which a trial is complete, unless ``tune.run(stop=...)`` sets another
            ``training_iteration``.

    Raises:
        InvalidSettingsError: The name is unknown or settings are invalid; lists all errors.
    """
    parsed = parse_scheduler_settings({"name": name, **settings})
    if not isinstance(parsed, ResourceChangingSettings):
        return _make_scheduler(parsed, objective, space, constraints)
    try:
        base = _make_scheduler(parsed.base, objective, space, constraints)
    except InvalidSettingsError as error:
        raise InvalidSettingsError(each.within("base") for each in error.details) from None
    return ResizingScheduler(objective, parsed, base)


def _make_scheduler(
    settings: SchedulerSettings,
    objective: Objective,
    space: SearchSpace | None,
    constraints: Sequence[Constraint],
) -> OutcomeMixin:
    if isinstance(settings, AutoSettings):
        settings, _ = settings.choose()
    if isinstance(settings, PbtSettings):
        return PbtScheduler(objective, settings, space)
    if isinstance(settings, Pb2Settings):
        from tune_tf.schedulers.pb2 import Pb2Scheduler  # late: Ray's loads scikit-learn

        return Pb2Scheduler(objective, settings, space)
    if isinstance(settings, FreezeThawSettings):
        from tune_tf.schedulers.freeze_thaw import FreezeThawScheduler  # late: it loads SciPy

        return FreezeThawScheduler(objective, settings, space, constraints)
    if isinstance(settings, AshaSettings) and settings.type == "promotion":
        return PromotionAshaScheduler(objective, settings)
    return _CLASSES[type(settings)](objective, settings)
