"""Schedulers by name."""

from collections.abc import Callable
from typing import Any

from tune_tf.config import SchedulerSettings, scheduler_settings
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
from tune_tf.errors import ErrorDetail, InvalidSettingsError
from tune_tf.objective import Objective
from tune_tf.schedulers.asha import AshaScheduler
from tune_tf.schedulers.bohb import BohbScheduler
from tune_tf.schedulers.fifo import FifoScheduler
from tune_tf.schedulers.hyperband import HyperbandScheduler
from tune_tf.schedulers.median_stopping import MedianStoppingScheduler
from tune_tf.schedulers.outcome_mixin import OutcomeMixin
from tune_tf.schedulers.pasha import PashaScheduler
from tune_tf.schedulers.pbt import PbtScheduler
from tune_tf.schedulers.promotion import PromotionAshaScheduler
from tune_tf.schedulers.resource_changing import ResizingScheduler
from tune_tf.space import SearchSpace


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
    return _make_scheduler(scheduler_settings({"name": name, **settings}), objective, space)


def _make_scheduler(
    settings: SchedulerSettings, objective: Objective, space: SearchSpace | None
) -> OutcomeMixin | ResizingScheduler:
    if isinstance(settings, ResourceChangingSettings):
        try:
            base = _MAKERS[type(settings.base)](objective, settings.base, space)
        except InvalidSettingsError as error:
            raise InvalidSettingsError(
                [
                    ErrorDetail(f"base.{detail.where}".rstrip("."), detail.what)
                    for detail in error.details
                ]
            ) from None
        return ResizingScheduler(objective, settings, base)
    return _MAKERS[type(settings)](objective, settings, space)


def _asha(objective: Objective, settings: AshaSettings, _space: SearchSpace | None) -> OutcomeMixin:
    made = PromotionAshaScheduler if settings.type == "promotion" else AshaScheduler
    return made(objective, settings)


def _pb2(objective: Objective, settings: Pb2Settings, space: SearchSpace | None) -> OutcomeMixin:
    from tune_tf.schedulers.pb2 import Pb2Scheduler  # late: Ray's loads scikit-learn

    return Pb2Scheduler(objective, settings, space)


_Maker = Callable[[Objective, Any, SearchSpace | None], OutcomeMixin]

# One row per scheduler; `type: promotion` of asha is handled in `_asha`.
_MAKERS: dict[type[SchedulerSettings], _Maker] = {
    FifoSettings: lambda objective, settings, _: FifoScheduler(objective, settings),
    AshaSettings: _asha,
    PashaSettings: lambda objective, settings, _: PashaScheduler(objective, settings),
    HyperbandSettings: lambda objective, settings, _: HyperbandScheduler(objective, settings),
    BohbSettings: lambda objective, settings, _: BohbScheduler(objective, settings),
    MedianStoppingSettings: lambda objective, settings, _: MedianStoppingScheduler(
        objective, settings
    ),
    PbtSettings: PbtScheduler,
    Pb2Settings: _pb2,
}
