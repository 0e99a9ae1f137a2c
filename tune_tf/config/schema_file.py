"""File with the JSON schema of sweep files, which their first lines name."""

import json
from pathlib import Path

from tune_tf.config.sweep_config import SweepConfig
from tune_tf.errors import InvalidSettingsError

SCHEMA_FILE = "sweep.schema.json"
"""Name of the file."""

FIRST_LINE = f"# yaml-language-server: $schema={SCHEMA_FILE}"
"""First line of a sweep file in the same folder, which editors look for."""


def schema_text() -> str:
    """Return the JSON schema of sweep files as text."""
    return json.dumps(SweepConfig.json_schema(), indent=2) + "\n"


def write_schema(path: str | Path) -> Path:
    """Write the JSON schema of sweep files.

    Args:
        path: The file; an existing one is replaced.

    Returns:
        The file's path.

    Raises:
        InvalidSettingsError: The file cannot be written.
    """
    path = Path(path)
    try:
        path.write_text(schema_text())
    except OSError as error:
        raise InvalidSettingsError([f"{path} cannot be written: {error.strerror}"]) from error
    return path
