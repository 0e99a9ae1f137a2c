"""The sections of a sweep file that are plain settings."""

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
)

from tune_tf.config.fault_text import faults_of, shown, unknown
from tune_tf.errors import InvalidSettingsError


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
