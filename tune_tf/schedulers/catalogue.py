"""Schedulers by name."""

from typing import Any

from tune_tf.config import SchedulerSettings, parse_scheduler_settings
from tune_tf.config.scheduler_settings import (
    AshaSettings,
    BohbSettings,
    FifoSettings,
    HyperbandSettings,
    MedianStoppingSettings,
    PashaSettings,
    Pb2Settings,
    PbtSettings,
    ResourceChangingSettings,
)
from tune_tf.errors import InvalidSettingsError
from tune_tf.objective import Objective
from tune_tf.schedulers.hyperband import BohbScheduler, HyperbandScheduler
from tune_tf.schedulers.outcome_mixin import OutcomeMixin
from tune_tf.schedulers.population import PbtScheduler
from tune_tf.schedulers.promotion import PashaScheduler, PromotionAshaScheduler
from tune_tf.schedulers.resource_changing import ResizingScheduler
from tune_tf.schedulers.stopping import AshaScheduler, FifoScheduler, MedianStoppingScheduler
from tune_tf.space import SearchSpace

_CLASSES: dict[type[SchedulerSettings], Any] = {
    FifoSettings: FifoScheduler,
    AshaSettings: AshaScheduler,
    PashaSettings: PashaScheduler,
    HyperbandSettings: HyperbandScheduler,
    BohbSettings: BohbScheduler,
    MedianStoppingSettings: MedianStoppingScheduler,
}
"""Schedulers that need no search space."""


def scheduler(
    name: str, objective: Objective, *, space: SearchSpace | None = None, **settings: Any
) -> OutcomeMixin | ResizingScheduler:
    """Create a Ray Tune scheduler that records in each trial's last result why it ended.

    Args:
        name: The scheduler, one of :data:`tune_tf.config.SCHEDULERS`.
        objective: The metric that trials are compared by.
        space: The search space, for schedulers that change parameters: ``pbt`` and ``pb2``.
        settings: The scheduler's settings, as in the ``scheduler`` section of a sweep file; see its
            class in :mod:`tune_tf.config.scheduler_settings`. Every scheduler has ``max_t``, the
            iterations after which a trial is complete, unless ``tune.run(stop=...)`` sets another
            ``training_iteration``.

    Raises:
        InvalidSettingsError: The name is unknown or settings are invalid; lists all errors.
    """
    made = parse_scheduler_settings({"name": name, **settings})
    if not isinstance(made, ResourceChangingSettings):
        return _make_scheduler(made, objective, space)
    try:
        base = _make_scheduler(made.base, objective, space)
    except InvalidSettingsError as error:
        details = [each.below("base") for each in error.details]
        raise InvalidSettingsError(details) from None
    return ResizingScheduler(objective, made, base)


def _make_scheduler(
    settings: SchedulerSettings, objective: Objective, space: SearchSpace | None
) -> OutcomeMixin:
    made: OutcomeMixin
    if isinstance(settings, PbtSettings):
        return PbtScheduler(objective, settings, space)
    if isinstance(settings, Pb2Settings):
        from tune_tf.schedulers.pb2 import Pb2Scheduler  # late: Ray's loads scikit-learn

        return Pb2Scheduler(objective, settings, space)
    if isinstance(settings, AshaSettings) and settings.type == "promotion":
        return PromotionAshaScheduler(objective, settings)
    made = _CLASSES[type(settings)](objective, settings)
    return made
