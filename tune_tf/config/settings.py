"""Base class of settings, and the MLflow section of a sweep file."""

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

from tune_tf.config.error_text import details_of, short_repr, unknown_key
from tune_tf.errors import InvalidSettingsError

_MAX_NAME_LENGTH = 255  # limit of MLflow's databases


class Settings(BaseModel):
    """Frozen settings that raise :class:`InvalidSettingsError` for invalid values."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, validate_default=True, allow_inf_nan=False
    )

    def __init__(self, **settings: Any) -> None:
        """Validate the values."""
        try:
            super().__init__(**settings)
        except ValidationError as error:
            raise InvalidSettingsError(details_of(type(self), error)) from None

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Self:
        """Parse plain data.

        Raises:
            InvalidSettingsError: All errors, each with its dotted path.
        """
        if not isinstance(settings, Mapping):
            raise InvalidSettingsError(
                [f"must be a mapping of settings, not {short_repr(settings)}"]
            )
        errors = [
            unknown_key(key, cls.model_fields) for key in settings if not isinstance(key, str)
        ]
        made = None
        try:
            made = cls(**{key: each for key, each in settings.items() if isinstance(key, str)})
        except InvalidSettingsError as error:
            errors += error.details
        if errors or made is None:
            raise InvalidSettingsError(errors)
        return made

    @classmethod
    def section(cls, value: Any) -> Any:
        """Convert a section of a sweep file to settings; keep existing settings."""
        return value if isinstance(value, cls) else cls.from_dict(value)


def _model_name(name: str) -> str:
    """Refuse a model name that MLflow would refuse after the sweep."""
    path = posixpath.normpath(name) != name or name in (".", "..")
    if not name.strip() or set(name) & set("/:") or path or len(name) > _MAX_NAME_LENGTH:
        raise ValueError(
            f"must be a name of 1 to {_MAX_NAME_LENGTH} characters without '/' and ':', as MLflow "
            f"requires, not {short_repr(name)}: use a name such as digits-cnn"
        )
    return name


def _alias(alias: str) -> str:
    """Refuse an alias that MLflow would refuse: ``latest`` and ``v1`` are reserved."""
    reserved = alias.lower() == "latest" or re.fullmatch(r"[vV]\d+", alias)
    if reserved or not re.fullmatch(r"[\w\-]+", alias) or len(alias) > _MAX_NAME_LENGTH:
        raise ValueError(
            "must be letters, digits, '_' and '-', and neither 'latest' nor a version number such "
            f"as 'v1', which MLflow reserves, not {short_repr(alias)}: use an alias "
            "such as champion"
        )
    return alias


class MLflowSettings(Settings):
    """MLflow store for trials and the best model.

    Args:
        tracking_uri: MLflow's database, folder or server.
        experiment_name: MLflow experiment; the sweep's name if empty.
        system_metrics: Whether trials report the load of their machine and process with their
            metrics, at most once a second.
        log_best_model: Whether the best trial's model is logged once the sweep has ended.
        register_best: Registered model that gets the best model as a version; None for none.
        best_alias: Alias of this version, taken from any other version; None for none.
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
                f"is {name!r}, but log_best_model is false: a version is made from the logged "
                "model; leave one of the two out"
            )
        return name
