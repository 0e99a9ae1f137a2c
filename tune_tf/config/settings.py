"""The sections of a sweep file that are plain settings."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_serializer,
)

from tune_tf.config.fault_text import faults_of, shown, unknown
from tune_tf.errors import Fault, InvalidSettingsError


class Settings(BaseModel):
    """Frozen settings that refuse bad values with :class:`InvalidSettingsError`."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, validate_default=True, allow_inf_nan=False
    )

    def __init__(self, **settings: Any) -> None:
        """Refuse bad values when made."""
        try:
            super().__init__(**settings)
        except ValidationError as error:
            raise InvalidSettingsError(faults_of(type(self), error)) from None

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Self:
        """Return the settings that plain data hold.

        Raises:
            InvalidSettingsError: With all faults, each placed by its dotted path.
        """
        if not isinstance(settings, Mapping):
            raise InvalidSettingsError([f"must be a mapping of settings, not {shown(settings)}"])
        faults = [unknown(key, cls.model_fields) for key in settings if not isinstance(key, str)]
        made = None
        try:
            made = cls(**{key: each for key, each in settings.items() if isinstance(key, str)})
        except InvalidSettingsError as error:
            faults += error.faults
        if faults or made is None:
            raise InvalidSettingsError(faults)
        return made

    @classmethod
    def section(cls, value: Any) -> Any:
        """Return a section of a sweep file as settings; what is settings already stays."""
        return value if isinstance(value, cls) else cls.from_dict(value)


class SearcherSettings(Settings):
    """Who proposes configs.

    Args:
        name: The searcher.
        sampler: Its way to propose: ``tpe`` learns from results, ``random`` does not.
        seed: Seed of the sampler; the sweep's unless given.
        storage: URL of an Optuna database; None for a journal file in the sweep's folder.
    """

    name: Literal["optuna"] = "optuna"
    sampler: Literal["tpe", "random"] = "tpe"
    seed: Annotated[int, Field(ge=0)] | None = None
    storage: str | None = None


class SchedulerSettings(Settings):
    """Who stops trials.

    Args:
        name: ``fifo`` lets each trial run to its limit, ``asha`` stops those that fall behind.
        max_t: Iterations that a trial may run at most.
        grace_period: Iterations before a trial may be stopped; asha only.
        reduction_factor: At each rung, one trial in so many goes on; asha only.
    """

    name: Literal["fifo", "asha"] = "fifo"
    max_t: Annotated[int, Field(ge=1)] = 100
    grace_period: Annotated[int, Field(ge=1)] = 1
    reduction_factor: Annotated[float, Field(gt=1)] = 3

    @field_validator("grace_period")
    @classmethod
    def _within_max_t(cls, value: int, info: ValidationInfo) -> int:
        if value > (max_t := info.data.get("max_t", value)):
            text = f"is {value} but max_t is {max_t}: no trial would ever be stopped; lower it"
            raise ValueError(text)
        return value

    def __init__(self, **settings: Any) -> None:
        """Refuse bad values when made, and what asha alone understands."""
        faults = []
        if settings.get("name", "fifo") == "fifo":
            faults = [
                Fault(
                    key,
                    "belongs to asha, but the scheduler is fifo: write name: asha, or leave it out",
                )
                for key in _ASHA_ONLY
                if key in settings
            ]
        try:
            super().__init__(**settings)
        except InvalidSettingsError as error:
            placed = {fault.where for fault in faults}
            faults += [fault for fault in error.faults if fault.where not in placed]
        if faults:
            raise InvalidSettingsError(faults)

    @model_serializer(mode="wrap")
    def _without_others(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        settings: dict[str, Any] = handler(self)
        if self.name == "fifo":
            settings = {key: value for key, value in settings.items() if key not in _ASHA_ONLY}
        return settings


_ASHA_ONLY = ("grace_period", "reduction_factor")


class BudgetSettings(Settings):
    """How much a sweep may spend.

    Args:
        num_samples: Trials to start.
        time_budget_s: Seconds after which the sweep ends, None for no limit.
    """

    num_samples: Annotated[int, Field(ge=1)]
    time_budget_s: Annotated[float, Field(gt=0)] | None = None


class MLflowSettings(Settings):
    """Where trials are recorded.

    Args:
        tracking_uri: Database, folder or server of MLflow.
        experiment_name: Its experiment; the sweep's name if empty.
    """

    tracking_uri: str = "sqlite:///mlflow.db"
    experiment_name: str = ""
