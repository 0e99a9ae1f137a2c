"""Scheduler section of a sweep file: one settings class per scheduler."""

import math
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationInfo,
)

from tune_tf.config.settings import Settings
from tune_tf.errors import ErrorDetail, InvalidSettingsError, adding_errors_to, did_you_mean, one_of
from tune_tf.space.parameter import is_number
from tune_tf.validation import short_repr


class SchedulerSettings(Settings):
    """Base class of scheduler settings.

    Args:
        name: The scheduler.
    """

    model_config = ConfigDict(json_schema_extra={"required": ["name"]})
    main_setting: ClassVar[str] = "name"

    name: str

    @classmethod
    def _unknown_key_error(cls, key: str, value: Any) -> ErrorDetail:
        """Return the error of an unknown key, with the schedulers that have it."""
        owners = [name for name, kind in SCHEDULERS.items() if key in kind.model_fields]
        if not owners:
            return super()._unknown_key_error(key, value)
        known, name = cls.model_fields, cls.model_fields["name"].default
        return ErrorDetail(
            key,
            f"belongs to {', '.join(owners)}, but the scheduler is {name}: write name: "
            f"{owners[0]}, or leave it out; known keys are {', '.join(known)}",
        )


class LimitedSettings(SchedulerSettings):
    """Base class of settings with a maximum number of iterations of a trial.

    Args:
        max_t: Maximum iterations (epochs) of a trial; better written as ``epochs`` of the sweep.
    """

    max_t: Annotated[int, Field(ge=1)] = 100


def parse_scheduler_settings(value: Any) -> Any:
    """Convert a section of a sweep file to settings; keep existing settings."""
    return _parse_settings(value, SCHEDULERS)


def _parse_base_settings(value: Any) -> Any:
    kinds = {name: kind for name, kind in SCHEDULERS.items() if name != "resource_changing"}
    return _parse_settings(value, kinds)


def _parse_settings(value: Any, kinds: Mapping[str, type[SchedulerSettings]]) -> Any:
    name = "fifo"
    if isinstance(value, Mapping):
        name = value.get("name", name)
    elif isinstance(value, SchedulerSettings):
        name = value.name
    if isinstance(name, str) and name in kinds:
        return kinds[name].section(value)
    text = f"must be {one_of(sorted(kinds))}, not {short_repr(name)}{did_you_mean(name, kinds)}"
    errors = [ErrorDetail("name", text)]
    # Report other errors too if the name is nearly right.
    near = get_close_matches(str(name), kinds, n=1)
    if near and isinstance(value, Mapping):
        with adding_errors_to(errors):
            kinds[near[0]].from_dict({key: value[key] for key in value if key != "name"})
    raise InvalidSettingsError(errors)


def _check_iterations(value: int, info: ValidationInfo) -> int:
    if value > (max_t := info.data.get("max_t", value)):
        verb = "stopped" if info.field_name == "grace_period" else "changed"
        raise ValueError(
            f"is {value} but max_t is {max_t}: no trial would ever be {verb}; lower it"
        )
    return value


def _parse_mutations(value: Any) -> Any:
    if value is None:
        return None
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        raise ValueError(
            f"must be a list of parameters, like [learning_rate], not {short_repr(value)}"
        )
    if not value:
        raise ValueError("is an empty list: name at least one parameter, or leave it out for all")
    if duplicates := sorted({name for name in value if value.count(name) > 1}):
        raise ValueError(f"names {', '.join(duplicates)} twice: leave one out")
    return tuple(value)


def _parse_factors(value: Any) -> Any:
    if (
        not isinstance(value, list | tuple)
        or not value
        or not all(is_number(factor) and 0 < factor < math.inf for factor in value)
    ):
        raise ValueError(
            f"must be a list of numbers above 0, like [1.2, 0.8], not {short_repr(value)}"
        )
    return tuple(map(float, value))


def _check_quantile(value: float) -> float:
    if value > 0.5:
        raise ValueError(
            f"must be at most 0.5, not {value:g}: no trial is among the best and the worst"
        )
    return value


def _check_probability(value: float) -> float:
    if value > 1:
        raise ValueError(f"must be a probability from 0 to 1, not {value:g}")
    return value


def _check_brackets(value: int, info: ValidationInfo) -> int:
    if value > 1 and info.data.get("type") == "promotion":
        raise ValueError(f"is {value}, but promotion has one: leave it out, or write `stopping`")
    return value


_Iterations = Annotated[int, Field(ge=1), AfterValidator(_check_iterations)]
_Quantile = Annotated[float, Field(ge=0), AfterValidator(_check_quantile)]
_Probability = Annotated[float, Field(ge=0), AfterValidator(_check_probability)]
_Mutations = Annotated[
    tuple[str, ...] | None,
    BeforeValidator(_parse_mutations),
    PlainSerializer(lambda names: names if names is None else list(names)),
]
_Factors = Annotated[tuple[float, ...], BeforeValidator(_parse_factors), PlainSerializer(list)]


class FifoSettings(LimitedSettings):
    """No early stopping: each trial runs to its limit."""

    model_config = ConfigDict(json_schema_extra={})  # a scheduler without a name is ``fifo``
    name: Literal["fifo"] = "fifo"


class AshaSettings(LimitedSettings):
    """Asynchronous successive halving: stops a trial that is worse than most at a rung.

    Args:
        grace_period: Iterations before a trial may be stopped.
        reduction_factor: At each rung, one of so many trials continues.
        type: ``stopping`` decides for good when a trial reaches a rung; ``promotion`` pauses each
            trial there and resumes it once it is among the best.
        brackets: Groups of trials, drawn at random, of which each next one is compared from a rung
            later; for ``stopping``.
    """

    name: Literal["asha"] = "asha"
    grace_period: _Iterations = 1
    reduction_factor: Annotated[float, Field(gt=1)] = 3
    type: Literal["stopping", "promotion"] = "stopping"
    brackets: Annotated[int, Field(ge=1), AfterValidator(_check_brackets)] = 1


class PashaSettings(LimitedSettings):
    """Promotion-type ASHA that adds rungs only while the ranking still changes.

    Args:
        grace_period: Iterations before a trial may be stopped.
        reduction_factor: At each rung, one of so many trials continues.
    """

    name: Literal["pasha"] = "pasha"
    grace_period: _Iterations = 1
    reduction_factor: Annotated[float, Field(gt=1)] = 3


class FreezeThawSettings(LimitedSettings):
    """Pauses every trial at rungs and goes on with those that may still become the best.

    Args:
        grace_period: Iterations before a trial may be paused.
        reduction_factor: Factor between two rungs.
        min_chance: Probability to become the best below which no trial goes on once all have begun.
        max_paused: Paused trials kept, each with a checkpoint; of more, the one with the least
            chance is stopped.
        seed: Seed of its draws; None for the sweep's. Example: ``7``.
    """

    name: Literal["freeze_thaw"] = "freeze_thaw"
    grace_period: _Iterations = 1
    reduction_factor: Annotated[float, Field(gt=1)] = 3
    min_chance: _Probability = 0.05
    max_paused: Annotated[int, Field(ge=1)] = 100
    seed: int | None = None


class HyperbandSettings(LimitedSettings):
    """Successive halving in brackets that stop trials early or late.

    Args:
        reduction_factor: At each milestone, one of so many trials of a bracket continues. Below 2,
            rounding would make milestones coincide.
    """

    name: Literal["hyperband"] = "hyperband"
    reduction_factor: Annotated[float, Field(ge=2)] = 3


class BohbSettings(LimitedSettings):
    """Hyperband that fills one bracket after another, as in BOHB.

    Args:
        reduction_factor: At each milestone, one of so many trials of a bracket continues.
    """

    name: Literal["bohb"] = "bohb"
    reduction_factor: Annotated[float, Field(ge=2)] = 3


class MedianStoppingSettings(LimitedSettings):
    """Median stopping: stops a trial whose best value is worse than the median of others' means.

    Args:
        grace_period: Iterations before a trial may be stopped.
        min_samples_required: Other trials needed before one is stopped.
        hard_stop: Whether to stop a trial; otherwise it is paused until all others have ended.
    """

    name: Literal["median_stopping"] = "median_stopping"
    grace_period: _Iterations = 1
    min_samples_required: Annotated[int, Field(ge=1)] = 3
    hard_stop: bool = True


class PbtSettings(LimitedSettings):
    """Population based training: the worst trials continue from perturbed copies of the best.

    Args:
        perturbation_interval: Iterations between two perturbations.
        quantile_fraction: Fraction of the worst trials that copy from as many of the best, at most
            0.5.
        resample_probability: Probability that a parameter is resampled, not perturbed.
        perturbation_factors: Factors, one of which multiplies a perturbed number. Example: ``[1.5,
            0.5]``.
        synch: Whether trials synchronize at each interval.
        mutations: Paths of the parameters to perturb; None for all possible ones. Example:
            ``[learning_rate]``.
    """

    name: Literal["pbt"] = "pbt"
    perturbation_interval: _Iterations = 5
    quantile_fraction: _Quantile = 0.25
    resample_probability: _Probability = 0.25
    perturbation_factors: _Factors = (1.2, 0.8)
    synch: bool = False
    mutations: _Mutations = None


class Pb2Settings(LimitedSettings):
    """Population based bandits: PBT with perturbations proposed by a Gaussian process.

    Args:
        perturbation_interval: Iterations between two perturbations.
        quantile_fraction: Fraction of the worst trials that copy from as many of the best, at most
            0.5.
        synch: Whether trials synchronize at each interval.
        mutations: Paths of the parameters to perturb; None for all possible ones. Example:
            ``[learning_rate]``.
    """

    name: Literal["pb2"] = "pb2"
    perturbation_interval: _Iterations = 5
    quantile_fraction: _Quantile = 0.25
    synch: bool = False
    mutations: _Mutations = None


class AutoSettings(LimitedSettings):
    """Chooses a scheduler: ``freeze_thaw`` where trials can be paused, else ``asha``."""

    name: Literal["auto"] = "auto"

    def choose(
        self, num_objectives: int = 1, *, in_processes: bool = False
    ) -> tuple[SchedulerSettings, str]:
        """Return the scheduler for a sweep, and why it is chosen.

        Args:
            num_objectives: Number of objectives.
            in_processes: Whether a trial starts processes of its own, which takes seconds each time
                that it goes on.
        """
        if self.max_t == 1:
            return FifoSettings(max_t=1), "trials of one epoch cannot be stopped early"
        asha = AshaSettings(max_t=self.max_t)
        if num_objectives > 1:
            return asha, "with several objectives, the end of one curve does not tell the best"
        if in_processes:
            return asha, "trials with processes of their own take seconds to go on after a pause"
        text = "one objective, and trials that go on after a pause at once"
        return FreezeThawSettings(max_t=self.max_t), text


_BaseSettings = (
    FifoSettings
    | AshaSettings
    | PashaSettings
    | FreezeThawSettings
    | HyperbandSettings
    | BohbSettings
    | MedianStoppingSettings
    | PbtSettings
    | Pb2Settings
    | AutoSettings
)


class ResourceChangingSettings(SchedulerSettings):
    """Gives free devices to running trials; another scheduler decides which to stop.

    Args:
        base: The other scheduler, with its settings. Example: ``{name: asha}``.
    """

    name: Literal["resource_changing"] = "resource_changing"
    base: Annotated[
        _BaseSettings, Field(discriminator="name"), BeforeValidator(_parse_base_settings)
    ] = FifoSettings()

    @property
    def max_t(self) -> int:
        """Maximum iterations of a trial."""
        return self.base.max_t


SchedulerSection = Annotated[
    _BaseSettings | ResourceChangingSettings,
    Field(discriminator="name"),
    BeforeValidator(parse_scheduler_settings),
]
"""The ``scheduler`` section of a sweep file."""

SCHEDULERS: dict[str, type[SchedulerSettings]] = {
    kind.model_fields["name"].default: kind
    for kind in (*get_args(_BaseSettings), ResourceChangingSettings)
}
"""Settings class by scheduler name."""
