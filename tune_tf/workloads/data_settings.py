"""Settings common to all workloads on users' own data."""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from tune_tf.config.settings import Settings, short_repr


def _texts(value: Any) -> Any:
    if isinstance(value, str) or not isinstance(value, list | tuple):
        raise ValueError(f"must be a list of names like [a, b], not {short_repr(value)}")
    wrong = [each for each in value if not isinstance(each, str)]
    if wrong:
        raise ValueError(f"must hold names, not {short_repr(wrong[0])}: put it in quotes")
    return tuple(value)


Names = Annotated[tuple[str, ...], BeforeValidator(_texts)]
"""Ordered names."""

Text = Annotated[str, Field(min_length=1)]
"""Non-empty text."""

TaskKind = Literal["auto", "classification", "regression"]
"""Kind of the target; ``auto`` infers it from the target's values."""


class DataSettings(Settings):
    """How rows are divided, for any data.

    Args:
        validation_share: Share of the rows to validate on, 0 for none; as good as the same share of
            each class.
        test_share: Share of the rows that no trial sees.
        seed: Of the choice of these rows, the same for all trials.
    """

    paths: ClassVar[tuple[str, ...]] = ("path",)
    """Names of the settings that are paths."""

    validation_share: Annotated[float, Field(ge=0, lt=1)] = 0.2
    test_share: Annotated[float, Field(ge=0, lt=1)] = 0.1
    seed: Annotated[int, Field(ge=0)] = 0

    @field_validator("test_share")
    @classmethod
    def _leaves_some(cls, share: float, info: ValidationInfo) -> float:
        validation = info.data.get("validation_share", 0)
        if share + validation >= 1:
            raise ValueError(
                f"is {share:g} and validation_share is {validation:g}: together they must be "
                "less than 1 to leave rows to train on"
            )
        return share

    def resolved(self, base_dir: Path) -> Self:
        """Return the settings with absolute paths, relative ones being relative to ``base_dir``."""
        absolute = {
            name: str(base_dir.absolute() / Path(value).expanduser())
            for name in self.paths
            if (value := getattr(self, name)) is not None
        }
        return self.model_copy(update=absolute)
