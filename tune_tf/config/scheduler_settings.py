"""Scheduler section of a sweep file: those of tune_tf by name, any other of Ray by its class."""

import inspect
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema

from tune_tf.config.settings import Settings
from tune_tf.errors import ErrorDetail, InvalidSettingsError, did_you_mean, one_of
from tune_tf.validation import short_repr, unknown_key_error


def _check_epochs(value: int, info: ValidationInfo) -> int:
    if value > (epochs := info.data.get("epochs", value)):
        verb = "stopped" if info.field_name == "grace_period" else "changed"
        raise ValueError(
            f"is {value} but epochs is {epochs}: no trial would ever be {verb}; lower it"
        )
    return value


_Epochs = Annotated[int, Field(ge=1), AfterValidator(_check_epochs)]
_Factor = Annotated[float, Field(gt=0)]


class SchedulerSettings(Settings):
    """Base class of scheduler settings.

    Args:
        name: The scheduler.
        epochs: Maximum epochs of a trial; in a sweep file, a setting of the sweep.
    """

    model_config = ConfigDict(json_schema_extra={"required": ["name"]})
    main_setting: ClassVar[str] = "name"

    name: str
    epochs: SkipJsonSchema[Annotated[int, Field(ge=1, exclude=True)]] = 100

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of Ray's scheduler of that kind."""
        return {"max_t": self.epochs, **self.model_dump(exclude={"name"})}


class FifoSettings(SchedulerSettings):
    """No early stopping: each trial runs to its limit."""

    model_config = ConfigDict(json_schema_extra={})  # a scheduler without a name is ``fifo``
    name: Literal["fifo"] = "fifo"


class AshaSettings(SchedulerSettings):
    """Asynchronous successive halving: stops a trial that is worse than most at a rung.

    Args:
        grace_period: Epochs before a trial may be stopped.
        reduction_factor: At each rung, one of so many trials continues.
        brackets: Groups of trials, drawn at random, of which each next one is compared from a rung
            later.
    """

    name: Literal["asha"] = "asha"
    grace_period: _Epochs = 1
    reduction_factor: Annotated[float, Field(gt=1)] = 3
    brackets: Annotated[int, Field(ge=1)] = 1


class FreezeThawSettings(SchedulerSettings):
    """Pauses every trial at rungs and goes on with those that may still become the best.

    Args:
        grace_period: Epochs before a trial may be paused.
        reduction_factor: Factor between two rungs.
        min_chance: Probability to become the best below which no trial goes on once all have begun.
        max_paused: Paused trials kept, each with a checkpoint; of more, the one with the least
            chance is stopped.
        seed: Seed of its draws; None for the sweep's. Example: ``7``.
    """

    name: Literal["freeze_thaw"] = "freeze_thaw"
    grace_period: _Epochs = 1
    reduction_factor: Annotated[float, Field(gt=1)] = 3
    min_chance: Annotated[float, Field(ge=0, le=1)] = 0.05
    max_paused: Annotated[int, Field(ge=1)] = 100
    seed: int | None = None


class PopulationSettings(SchedulerSettings):
    """Base class of settings of population based training.

    Args:
        perturbation_interval: Epochs between two perturbations.
        quantile_fraction: Fraction of the worst trials that copy from as many of the best, at most
            0.5.
        mutations: Paths of the parameters to perturb; None for all possible ones. Example:
            ``[learning_rate]``.
    """

    perturbation_interval: _Epochs = 5
    quantile_fraction: Annotated[float, Field(ge=0, le=0.5)] = 0.25
    mutations: Annotated[list[str], Field(min_length=1)] | None = None


class Pb2Settings(PopulationSettings):
    """Population based bandits: PBT with perturbations proposed by a Gaussian process."""

    name: Literal["pb2"] = "pb2"


class PbtSettings(PopulationSettings):
    """Population based training: the worst trials continue from perturbed copies of the best.

    Args:
        resample_probability: Probability that a parameter is resampled, not perturbed.
        perturbation_factors: Factors, one of which multiplies a perturbed number. Example: ``[1.5,
            0.5]``.
    """

    name: Literal["pbt"] = "pbt"
    resample_probability: Annotated[float, Field(ge=0, le=1)] = 0.25
    perturbation_factors: list[_Factor] = Field([1.2, 0.8], min_length=1)


class AutoSettings(SchedulerSettings):
    """Chooses a scheduler: ``freeze_thaw`` where trials can be paused, else ``asha``."""

    name: Literal["auto"] = "auto"

    def choose(self, num_objectives: int = 1, *, in_processes: bool = False) -> SchedulerSettings:
        """Return the scheduler for a sweep.

        Trials of one epoch cannot be stopped early, and with several objectives the end of one
        curve does not tell the best.

        Args:
            num_objectives: Number of objectives.
            in_processes: Whether a trial starts processes of its own, which takes seconds each time
                that it goes on.
        """
        if self.epochs == 1:
            return FifoSettings(epochs=1)
        if num_objectives > 1 or in_processes:
            return AshaSettings(epochs=self.epochs)
        return FreezeThawSettings(epochs=self.epochs)


_DEFAULTS = {"MedianStoppingRule": {"grace_period": 1}}  # Ray's counts seconds by default


class RaySettings(SchedulerSettings):
    """Any other scheduler of Ray by its class name, with that class's own arguments.

    Args:
        name: A class in ``ray.tune.schedulers``. Example: ``HyperBandScheduler``.
    """

    model_config = ConfigDict(extra="allow")
    name: Annotated[str, Field(pattern="^[A-Z]")]

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of the class; its limit of epochs only if it has one."""
        has_limit = "max_t" in inspect.signature(ray_schedulers()[self.name]).parameters
        limit = {"max_t": self.epochs} if has_limit else {}
        return _DEFAULTS.get(self.name, {}) | limit | (self.model_extra or {})

    @model_validator(mode="after")
    def _check_arguments(self) -> Self:
        known = dict.fromkeys((*type(self).model_fields, *ray_arguments(self.name)))
        unknown = [key for key in self.model_extra or {} if key not in known]
        if unknown:
            raise InvalidSettingsError(unknown_key_error(key, known) for key in unknown)
        return self


_OwnSettings = (
    FifoSettings | AshaSettings | FreezeThawSettings | PbtSettings | Pb2Settings | AutoSettings
)

SCHEDULERS: dict[str, type[SchedulerSettings]] = {
    kind.model_fields["name"].default: kind for kind in get_args(_OwnSettings)
}
"""Settings class by scheduler name, of those with a name of their own."""


def ray_schedulers() -> dict[str, type[Any]]:
    """Return Ray's schedulers by class name, without those that ``fifo``, ``pbt`` and ``pb2`` are.

    Population based training must know the search space, which these two take from the sweep.
    """
    from ray.tune import schedulers  # late: it takes a second

    return {
        name: kind
        for name, kind in inspect.getmembers(schedulers, inspect.isclass)
        if issubclass(kind, schedulers.FIFOScheduler)
        and not name.startswith(("FIFO", "PB2", "PopulationBased"))
    }


def ray_arguments(name: str) -> list[str]:
    """Return the arguments of a scheduler of Ray, without what objective and limit say."""
    names = inspect.signature(ray_schedulers()[name]).parameters
    said = ("time_attr", "max_t", "metric", "mode", "stop_last_trials")
    return [each for each in names if each not in said]


def parse_scheduler_settings(value: Any) -> Any:
    """Convert a section of a sweep file to settings; keep existing settings."""
    if isinstance(value, SchedulerSettings):
        return value
    name = value.get("name", "fifo") if isinstance(value, Mapping) else "fifo"
    if isinstance(name, str) and name in SCHEDULERS:
        return SCHEDULERS[name].from_dict(value)
    known = [*SCHEDULERS, *ray_schedulers()]
    if name in known:
        return RaySettings.from_dict(value)
    text = f"must be {one_of(known)}, not {short_repr(name)}{did_you_mean(str(name), known)}"
    raise InvalidSettingsError(ErrorDetail("name", text))


SchedulerSection = Annotated[_OwnSettings | RaySettings, BeforeValidator(parse_scheduler_settings)]
"""The ``scheduler`` section of a sweep file."""
