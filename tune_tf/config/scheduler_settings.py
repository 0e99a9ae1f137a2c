"""What each scheduler can be told: the ``scheduler`` section of a sweep file.

One class a scheduler, so that a setting stands only where it means something; the schedulers
themselves are made from the same classes.
"""

import math
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationInfo,
)

from tune_tf.config.error_text import shortened
from tune_tf.config.settings import Settings
from tune_tf.errors import ErrorDetail, InvalidSettingsError, near_ones, one_of
from tune_tf.space.parameter import is_number

_NAME_MUST_STAND: ConfigDict = {"json_schema_extra": {"required": ["name"]}}
"""For editors: without a name, a scheduler is ``fifo``."""


class SchedulerSettings(Settings):
    """What the settings of all schedulers have in common.

    Args:
        name: The scheduler.
    """

    name: str

    def __init__(self, **settings: Any) -> None:
        """Refuse bad values when made, and what other schedulers alone understand."""
        known = type(self).model_fields
        foreign = {key: _owners(key) for key in settings if key not in known and _owners(key)}
        name = known["name"].default
        faults = [
            ErrorDetail(
                key,
                f"belongs to {', '.join(owners)}, but the scheduler is {name}: write name: "
                f"{owners[0]}, or leave it out; known are {', '.join(known)}",
            )
            for key, owners in foreign.items()
        ]
        try:
            super().__init__(**{key: settings[key] for key in settings if key not in foreign})
        except InvalidSettingsError as error:
            faults += error.faults
        if faults:
            raise InvalidSettingsError(faults)


class LimitedSettings(SchedulerSettings):
    """Settings of a scheduler that decides on trials itself.

    Args:
        name: The scheduler.
        max_t: Iterations that a trial may run at most.
    """

    max_t: Annotated[int, Field(ge=1)] = 100


def _owners(key: str) -> list[str]:
    """Return the schedulers that understand a setting."""
    return [name for name, kind in SCHEDULERS.items() if key in kind.model_fields]


def scheduler_settings(value: Any) -> Any:
    """Return a section of a sweep file as settings; what is settings already stays.

    Raises:
        InvalidSettingsError: With all faults, each placed by its dotted path.
    """
    return _settings_of(value, SCHEDULERS)


def _base_settings(value: Any) -> Any:
    return _settings_of(
        value, {name: kind for name, kind in SCHEDULERS.items() if name != "resource_changing"}
    )


def _settings_of(value: Any, kinds: Mapping[str, type[SchedulerSettings]]) -> Any:
    if isinstance(value, SchedulerSettings) and value.name in kinds:
        return value
    if not isinstance(value, Mapping | SchedulerSettings):
        return FifoSettings.from_dict(value)
    name = value.name if isinstance(value, SchedulerSettings) else value.get("name", "fifo")
    if isinstance(name, str) and name in kinds:
        return kinds[name].from_dict(value)  # type: ignore[arg-type]
    text = f"must be {one_of(sorted(kinds))}, not {shortened(name)}{near_ones(name, kinds)}"
    faults = [ErrorDetail("name", text)]
    # What else is wrong can be told where the name is nearly right.
    near = get_close_matches(str(name), kinds, n=1)
    if near and isinstance(value, Mapping):
        try:
            kinds[near[0]].from_dict({key: value[key] for key in value if key != "name"})
        except InvalidSettingsError as error:
            faults += error.faults
    raise InvalidSettingsError(faults)


def _within_max_t(value: int, info: ValidationInfo) -> int:
    if value > (max_t := info.data.get("max_t", value)):
        what = {
            "grace_period": "no trial would ever be stopped",
            "perturbation_interval": "no trial would ever be changed",
        }
        text = f"is {value} but max_t is {max_t}: {what[str(info.field_name)]}; lower it"
        raise ValueError(text)
    return value


def _paths(value: Any) -> Any:
    if value is None:
        return None
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        raise ValueError(
            f"must be a list of parameters, like [learning_rate], not {shortened(value)}"
        )
    if not value:
        raise ValueError("is an empty list: name at least one parameter, or leave it out for all")
    twice = sorted({name for name in value if value.count(name) > 1})
    if twice:
        raise ValueError(f"names {', '.join(twice)} twice: leave one out")
    return tuple(value)


def _factors(value: Any) -> Any:
    good = isinstance(value, list | tuple) and all(
        is_number(each) and 0 < each < math.inf for each in value
    )
    if not good or not value:
        raise ValueError(
            f"must be a list of numbers above 0, like [1.2, 0.8], not {shortened(value)}"
        )
    return tuple(float(each) for each in value)


def _at_most_half(value: float) -> float:
    if value > 0.5:
        text = f"must be at most 0.5, not {value:g}: no trial is among the best and the worst"
        raise ValueError(text)
    return value


def _at_most_one(value: float) -> float:
    if value > 1:
        raise ValueError(f"must be a probability from 0 to 1, not {value:g}")
    return value


_GracePeriod = Annotated[int, Field(ge=1), AfterValidator(_within_max_t)]
_Interval = Annotated[int, Field(ge=1), AfterValidator(_within_max_t)]
_Quantile = Annotated[float, Field(ge=0), AfterValidator(_at_most_half)]
_Probability = Annotated[float, Field(ge=0), AfterValidator(_at_most_one)]
_Mutations = Annotated[
    tuple[str, ...] | None,
    BeforeValidator(_paths),
    PlainSerializer(lambda names: names if names is None else list(names)),
]
_Factors = Annotated[tuple[float, ...], BeforeValidator(_factors), PlainSerializer(list)]


class FifoSettings(LimitedSettings):
    """Each trial runs to its limit.

    Args:
        name: ``fifo``.
        max_t: Iterations that a trial may run at most.
    """

    name: Literal["fifo"] = "fifo"


class AshaSettings(LimitedSettings):
    """Asynchronous successive halving: a trial that is worse than most at a rung is stopped.

    Args:
        name: ``asha``.
        max_t: Iterations that a trial may run at most.
        grace_period: Iterations before a trial may be stopped.
        reduction_factor: At each rung, one trial in so many goes on.
        type: ``stopping`` decides when a trial comes to a rung, for good; ``promotion`` pauses each
            trial there and takes it up again once it is known to be among the best.
    """

    model_config = _NAME_MUST_STAND
    name: Literal["asha"] = "asha"
    grace_period: _GracePeriod = 1
    reduction_factor: Annotated[float, Field(gt=1)] = 3
    type: Literal["stopping", "promotion"] = "stopping"


class PashaSettings(LimitedSettings):
    """Promoting successive halving that goes further only while the ranking still changes.

    Args:
        name: ``pasha``.
        max_t: Iterations that a trial may run at most.
        grace_period: Iterations before a trial may be stopped.
        reduction_factor: At each rung, one trial in so many goes on.
    """

    model_config = _NAME_MUST_STAND
    name: Literal["pasha"] = "pasha"
    grace_period: _GracePeriod = 1
    reduction_factor: Annotated[float, Field(gt=1)] = 3


class HyperbandSettings(LimitedSettings):
    """Successive halving in brackets, some that cut early and some that cut late.

    Args:
        name: ``hyperband``.
        max_t: Iterations that a trial may run at most.
        reduction_factor: At each milestone, one trial of a bracket in so many goes on. Below 2,
            rounding would put milestones on top of each other.
    """

    model_config = _NAME_MUST_STAND
    name: Literal["hyperband"] = "hyperband"
    reduction_factor: Annotated[float, Field(ge=2)] = 3


class BohbSettings(LimitedSettings):
    """Hyperband that fills one bracket after the other, as BOHB's searcher expects.

    Args:
        name: ``bohb``.
        max_t: Iterations that a trial may run at most.
        reduction_factor: At each milestone, one trial of a bracket in so many goes on.
    """

    model_config = _NAME_MUST_STAND
    name: Literal["bohb"] = "bohb"
    reduction_factor: Annotated[float, Field(ge=2)] = 3


class MedianStoppingSettings(LimitedSettings):
    """A trial whose best value is worse than the median of the others' means is stopped.

    Args:
        name: ``median_stopping``.
        max_t: Iterations that a trial may run at most.
        grace_period: Iterations before a trial may be stopped.
        min_samples_required: Other trials that must be known before one is stopped.
        hard_stop: Whether to stop a trial; otherwise it waits until all others have ended.
    """

    model_config = _NAME_MUST_STAND
    name: Literal["median_stopping"] = "median_stopping"
    grace_period: _GracePeriod = 1
    min_samples_required: Annotated[int, Field(ge=1)] = 3
    hard_stop: bool = True


class PbtSettings(LimitedSettings):
    """Population based training: the worst trials go on from the best ones, a little changed.

    Args:
        name: ``pbt``.
        max_t: Iterations that a trial may run at most.
        perturbation_interval: Iterations between two looks at a trial.
        quantile_fraction: The best and the worst so many of all trials trade places, at most half.
        resample_probability: How often a changed parameter is drawn anew, not moved.
        perturbation_factors: What a number is multiplied by, one of them, when moved.
        synch: Whether trials wait for each other at each interval.
        mutations: Parameters that change, by path; None for all that can.
    """

    model_config = _NAME_MUST_STAND
    name: Literal["pbt"] = "pbt"
    perturbation_interval: _Interval = 5
    quantile_fraction: _Quantile = 0.25
    resample_probability: _Probability = 0.25
    perturbation_factors: _Factors = (1.2, 0.8)
    synch: bool = False
    mutations: _Mutations = None


class Pb2Settings(LimitedSettings):
    """Population based bandits: PBT whose changes are proposed by a Gaussian process.

    Args:
        name: ``pb2``.
        max_t: Iterations that a trial may run at most.
        perturbation_interval: Iterations between two looks at a trial.
        quantile_fraction: The best and the worst so many of all trials trade places, at most half.
        synch: Whether trials wait for each other at each interval.
        mutations: Parameters that change, by path; None for all that can.
    """

    model_config = _NAME_MUST_STAND
    name: Literal["pb2"] = "pb2"
    perturbation_interval: _Interval = 5
    quantile_fraction: _Quantile = 0.25
    synch: bool = False
    mutations: _Mutations = None


_Base = Annotated[
    FifoSettings
    | AshaSettings
    | PashaSettings
    | HyperbandSettings
    | BohbSettings
    | MedianStoppingSettings
    | PbtSettings
    | Pb2Settings,
    Field(discriminator="name"),
]


class ResourceChangingSettings(SchedulerSettings):
    """Free devices are given to the trials that run, as another scheduler decides on those.

    Args:
        name: ``resource_changing``.
        base: The scheduler that decides, with its settings.
    """

    model_config = _NAME_MUST_STAND
    name: Literal["resource_changing"] = "resource_changing"
    base: Annotated[_Base, BeforeValidator(_base_settings)] = FifoSettings()

    @property
    def max_t(self) -> int:
        """Return the iterations that a trial may run at most."""
        return self.base.max_t


SchedulerSection = Annotated[
    Annotated[_Base | ResourceChangingSettings, Field(discriminator="name")],
    BeforeValidator(scheduler_settings),
]
"""The ``scheduler`` section of a sweep file."""

SCHEDULERS: dict[str, type[SchedulerSettings]] = {
    "fifo": FifoSettings,
    "asha": AshaSettings,
    "pasha": PashaSettings,
    "hyperband": HyperbandSettings,
    "bohb": BohbSettings,
    "median_stopping": MedianStoppingSettings,
    "pbt": PbtSettings,
    "pb2": Pb2Settings,
    "resource_changing": ResourceChangingSettings,
}
"""The settings of each scheduler by its name."""
