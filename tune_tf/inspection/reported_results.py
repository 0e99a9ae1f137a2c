"""A trial's results in Ray Tune's ``result.json``, one per line."""

import os
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tune_tf.atomic_files import json_objects, read_json_lines
from tune_tf.result_keys import TRAINING_ITERATION, is_valid_result

RESULTS: Final = "result.json"
REMOTE_CHECKPOINT: Final = "checkpoint.uri"
"""Name of the file with the URI of the last checkpoint, if ``storage_path`` is a URI."""

_TAIL_BYTES = 16_384


def read_results(path: Path) -> Iterator[Mapping[str, Any]]:
    """Return the results in a ``result.json``; skip a partial line of a killed driver."""
    return read_json_lines(path, _is_complete)


def read_last_result(path: Path) -> Mapping[str, Any]:
    """Return the last complete result of a ``result.json``, from its end; empty if none."""
    try:
        with path.open("rb") as file:
            start = max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES)
            file.seek(start)
            lines = file.read().splitlines()
    except OSError:
        return {}
    objects = json_objects(reversed(lines[1:] if start else lines))
    last = next(filter(_is_complete, objects), None)
    if last is None and (start or lines):  # the last line is longer, or the file is damaged
        last = next(iter(deque(read_json_lines(path, _is_complete), maxlen=1)), None)
    return last or {}


def _is_complete(result: Mapping[str, Any]) -> bool:
    return TRAINING_ITERATION in result and is_valid_result(result)


def metric_value(report: Mapping[str, Any], metric: str) -> Any:
    """Return a metric of a result, nested ones by path (``val/loss``); None if missing."""
    if metric in report:
        return report[metric]
    value: Any = report
    for name in metric.split("/"):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
