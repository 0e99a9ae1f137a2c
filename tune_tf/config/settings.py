"""The sections of a sweep file that are plain settings."""

import posixpath
import re
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from tune_tf.config.error_text import details_of, shortened, unknown_key
from tune_tf.errors import InvalidSettingsError

_MAX_NAME_LENGTH = 255  # what MLflow's databases hold


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
            raise InvalidSettingsError(details_of(type(self), error)) from None

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Self:
        """Return the settings that plain data hold.

        Raises:
            InvalidSettingsError: With all faults, each placed by its dotted path.
        """
        if not isinstance(settings, Mapping):
            raise InvalidSettingsError(
                [f"must be a mapping of settings, not {shortened(settings)}"]
            )
        faults = [
            unknown_key(key, cls.model_fields) for key in settings if not isinstance(key, str)
        ]
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


def _model_name(name: str) -> str:
    """Refuse a name of a registered model that MLflow refuses, before the sweep and not after."""
    path = posixpath.normpath(name) != name or name in (".", "..")
    if not name.strip() or set(name) & set("/:") or path or len(name) > _MAX_NAME_LENGTH:
        raise ValueError(
            f"must be a name of 1 to {_MAX_NAME_LENGTH} characters without '/' and ':', as MLflow "
            f"takes it, not {shortened(name)}: put a name such as digits-cnn"
        )
    return name


def _alias(alias: str) -> str:
    """Refuse an alias that MLflow refuses: ``latest`` and ``v1`` have a meaning of their own."""
    reserved = alias.lower() == "latest" or re.fullmatch(r"[vV]\d+", alias)
    if reserved or not re.fullmatch(r"[\w\-]+", alias) or len(alias) > _MAX_NAME_LENGTH:
        raise ValueError(
            "must be letters, digits, '_' and '-', and neither 'latest' nor a number of a version "
            f"such as 'v1', which MLflow keeps for itself, not {shortened(alias)}: put an alias "
            "such as champion"
        )
    return alias


class MLflowSettings(Settings):
    """Where trials are recorded, and the best model.

    Args:
        tracking_uri: Database, folder or server of MLflow.
        experiment_name: Its experiment; the sweep's name if empty.
        system_metrics: Whether trials report the load of their machine and process with their
            metrics, at most once a second.
        log_best_model: Whether the best trial's model is logged once the sweep has ended.
        register_best: Registered model that the best model becomes a version of; None for none.
        best_alias: Alias that this version gets; other versions lose it. None for no alias.
    """

    tracking_uri: str = "sqlite:///mlflow.db"
    experiment_name: str = ""
    system_metrics: bool = True
    log_best_model: bool = True
    register_best: Annotated[str, AfterValidator(_model_name)] | None = None
    best_alias: Annotated[str, AfterValidator(_alias)] | None = "champion"

    @field_validator("register_best")
    @classmethod
    def _of_a_logged_model(cls, name: str | None, info: ValidationInfo) -> str | None:
        if name is not None and info.data.get("log_best_model") is False:
            raise ValueError(
                f"is {name!r}, but log_best_model is false: a version is made of the logged model; "
                "leave one of the two out"
            )
        return name
