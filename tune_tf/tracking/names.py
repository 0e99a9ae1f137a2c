"""What of a result is a metric, what of a config is a parameter, and the names MLflow takes.

MLflow's limits stand here once. Everything is pure: no framework is loaded.
"""

import hashlib
import numbers
import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any

from tune_tf.result_keys import reported_metrics

MAX_KEY_LENGTH = 250
MAX_PARAM_LENGTH = 6000
MAX_TAG_LENGTH = 8000
MAX_RUN_NAME_LENGTH = 250
MAX_EXPERIMENT_NAME_LENGTH = 256
_MAX_FILE_NAME_BYTES = 200

TIME_TOTAL = "tune/time_total_s"
"""The one of Ray's own numbers that is logged, with every result: it marks the steps a run has."""

EXPLOITS = "tune/exploits"
"""How often a trial had been given another trial's weights when it reported; left out at none.

Such a trial may report a step again, with another value. A point is told from others by this
number and its step.
"""

NUM_ENDED_METRIC = "trials/ended"
"""How many trials have ended; the parent's reports count by it."""

LONG_PARAMS = "params"
"""Folder of a run's artifacts with the values that are too long for a parameter."""

_FORBIDDEN = re.compile(r"[^/\w.\- :]")


def mlflow_key(name: str) -> str:
    """Return a metric's or a parameter's name as MLflow takes it; most names stay as they are.

    Characters that MLflow forbids become ``_``; a name over 250 characters keeps its start and
    ends in a digest, so that two long names stay two.
    """
    key = posixpath.normpath(_FORBIDDEN.sub("_", name)).strip("/")
    key = key.replace("..", "_") if key.startswith("..") else key
    key = "_" if key in ("", ".") else key
    if len(key) > MAX_KEY_LENGTH:
        digest = hashlib.sha256(key.encode()).hexdigest()[:8]
        key = f"{key[: MAX_KEY_LENGTH - 9]}-{digest}"
    return key


def truncate(text: str, length: int) -> str:
    """Return ``text``, cut to ``length`` characters with ``...`` at its end if it is longer."""
    return text if len(text) <= length else text[: length - 3] + "..."


def one_line(text: str, length: int) -> str:
    """Return a text that names something: without line breaks and control characters, and cut."""
    return truncate(" ".join("".join(c if c.isprintable() else " " for c in text).split()), length)


def safe_file_name(name: str) -> str:
    """Return a name for one file or folder, on any file system and in a URL, made of any text.

    Two names stay two: one that is changed ends in a digest of what it was.
    """
    safe = re.sub(r"[^\w.\- ]", "_", name).strip(" ")
    safe = re.sub(r"^\.+", "_", safe) or "_"
    if safe == name and len(safe.encode()) <= _MAX_FILE_NAME_BYTES:
        return safe
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:8]
    short = safe.encode(errors="replace")[: _MAX_FILE_NAME_BYTES - 9].decode(errors="ignore")
    return f"{short}-{digest}"


def flat_items(values: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield a nested mapping's leaves, their names joined by ``/``; an empty mapping is a leaf."""
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield from flat_items(value, f"{name}/")
        else:
            yield name, value


def is_metric_value(value: object) -> bool:
    """Return whether a value is a real number; booleans are not, NaN and Inf are."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def mlflow_metrics(result: Mapping[str, Any]) -> dict[str, float]:
    """Return the metrics of a result: its numbers under their own names, and the total time.

    Args:
        result: A result as Ray Tune hands it to callbacks; nested values are joined by ``/``.
    """
    metrics = {
        mlflow_key(name): float(value)
        for name, value in flat_items(reported_metrics(result))
        if is_metric_value(value)
    }
    time_total = result.get("time_total_s")
    if is_metric_value(time_total):
        metrics[TIME_TOTAL] = float(time_total)  # type: ignore[arg-type]
    return metrics


def mlflow_params(config: Mapping[str, Any]) -> dict[str, str]:
    """Return a config as MLflow parameters: flat, as text, values cut at 6000 characters."""
    return {
        mlflow_key(name): truncate(str(value), MAX_PARAM_LENGTH)
        for name, value in flat_items(config)
    }


def long_params(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of a config that are cut as parameters, whole: artifact path to text."""
    texts = ((name, str(value)) for name, value in flat_items(config))
    return {
        f"{LONG_PARAMS}/{safe_file_name(name)}.txt": text
        for name, text in texts
        if len(text) > MAX_PARAM_LENGTH
    }
