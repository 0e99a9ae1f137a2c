"""A trial's results in Ray Tune's ``result.json``, one per line."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tune_tf.atomic_files import json_objects, read_json_lines
from tune_tf.result_keys import TRAINING_ITERATION, is_valid_result

RESULTS: Final = "result.json"
REMOTE_CHECKPOINT: Final = "checkpoint.uri"
"""Name of the file with the URI of the last checkpoint, if ``storage_path`` is a URI."""


def read_results(path: Path) -> Iterator[Mapping[str, Any]]:
    """Return the results in a ``result.json``; skip a partial line of a killed driver."""
    return read_json_lines(path, _is_complete)


def read_last_result(path: Path) -> Mapping[str, Any]:
    """Return the last complete result of a ``result.json``; empty if none."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return {}
    last = next(filter(_is_complete, json_objects(reversed(lines))), None)
    return next(read_results(path), {}) if last is None else last  # or it warns of a damaged file


def _is_complete(result: Mapping[str, Any]) -> bool:
    return TRAINING_ITERATION in result and is_valid_result(result)
