"""Base class of the sections of a sweep file, and rules of single settings."""

from typing import Any, ClassVar, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    GetJsonSchemaHandler,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic_core import CoreSchema

from tune_tf.errors import InvalidSettingsError
from tune_tf.validation import (
    STRICT,
    described_schema,
    error_details,
    section,
    short_repr,
)


class Settings(BaseModel):
    """Frozen settings that raise :class:`InvalidSettingsError` for invalid values."""

    model_config = STRICT | ConfigDict(frozen=True)

    main_setting: ClassVar[str] = ""
    """Setting that a plain value in place of a section is meant for."""

    def __init__(self, **settings: Any) -> None:
        """Validate the values."""
        try:
            super().__init__(**settings)
        except ValidationError as error:
            raise InvalidSettingsError(error_details(error, type(self).model_fields)) from None

    @classmethod
    def from_dict(cls, settings: Any) -> Self:
        """Parse plain data; the error lists all mistakes, each with its dotted path.

        Existing settings are kept, and what is no mapping is refused with what to write.
        """
        return section(cls, settings, cls.main_setting)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Describe each setting."""
        return described_schema(cls, core_schema, handler)


def with_rule(rule: str) -> WrapValidator:
    """Return a validator that says what a value must be where pydantic refuses it.

    Args:
        rule: What is allowed, such as ``must be an integer, or all``.
    """

    def validate(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        try:
            return handler(value)
        except ValidationError:
            raise ValueError(f"{rule}, not {short_repr(value)}") from None

    return WrapValidator(validate)
