"""Ready sweep files, which the package brings along."""

from pathlib import Path
from typing import Final

from tune_tf.config import SCHEMA_FILE, write_schema
from tune_tf.errors import InvalidSettingsError, did_you_mean

_FOLDER: Final = Path(__file__).with_name("examples")
_SHORT_NAMES: Final = {"digits": "digits_cnn"}


def example_names() -> list[str]:
    """Return the names of all ready sweep files."""
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def write_example(name: str, output: Path, *, force: bool) -> tuple[Path, ...]:
    """Write a ready sweep file, and the schema that its editor uses; return their paths.

    Raises:
        InvalidSettingsError: There is no such example, or the file exists and not ``force``.
    """
    names = example_names()
    stem = _SHORT_NAMES.get(name, name)
    if stem not in names:
        raise InvalidSettingsError(
            f"there is no example {name!r}{did_you_mean(name, names)}; the examples are "
            f"{', '.join(names)}"
        )
    if output.exists() and not force:
        raise InvalidSettingsError(f"{output} exists: choose another --output, or add --force")
    text = (_FOLDER / f"{stem}.yaml").read_text(encoding="utf-8")
    output.write_text(text, encoding="utf-8")
    schema = output.with_name(SCHEMA_FILE)
    write_schema(schema)
    return output, schema
