"""Conversion of results and configs to MLflow's metrics and parameters, within its limits."""

import hashlib
import numbers
import posixpath
import re
from collections.abc import Mapping
from typing import Any

from tune_tf.result_keys import KEPT, SYSTEM_METRICS, reported_metrics
from tune_tf.space import flatten

MAX_KEY_LENGTH = 250
MAX_PARAM_LENGTH = 6000
MAX_TAG_LENGTH = 8000
MAX_RUN_NAME_LENGTH = 250
MAX_EXPERIMENT_NAME_LENGTH = 256
_MAX_FILE_NAME_BYTES = 200

TIME_TOTAL = f"{SYSTEM_METRICS}time_total_s"
"""The only one of Ray's own metrics that is logged."""

EXPLOITS = "tune/exploits"
"""Number of times that a trial had copied another trial's weights; omitted if zero.

Such a trial may report a step again with another value: a point is identified by this number and
its step.
"""

COUNTS = "trials/"
"""Prefix of the numbers of trials that have ended, in all and by outcome."""

NUM_ENDED_METRIC = f"{COUNTS}ended"
"""Number of ended trials; the step of the parent's points, each of which has it last."""

_FORBIDDEN = re.compile(r"[^/\w.\- :]")


def mlflow_key(name: str) -> str:
    """Convert a name to a valid MLflow metric or parameter name.

    Forbidden characters become ``_``; a name over 250 characters is truncated and ends in a digest,
    so that distinct long names stay distinct.
    """
    key = posixpath.normpath(_FORBIDDEN.sub("_", name)).strip("/")
    key = key.replace("..", "_") if key.startswith("..") else key
    key = "_" if key in ("", ".") else key
    if len(key) > MAX_KEY_LENGTH:
        digest = hashlib.sha256(key.encode()).hexdigest()[:8]
        key = f"{key[: MAX_KEY_LENGTH - 9]}-{digest}"
    return key


def truncate(text: str, length: int) -> str:
    """Truncate a text to ``length`` characters, with ``...`` at the end if it is longer."""
    return text if len(text) <= length else text[: length - 3] + "..."


def one_line(text: str, length: int) -> str:
    """Truncate a text to ``length`` characters, without line breaks and control characters."""
    return truncate(" ".join("".join(c if c.isprintable() else " " for c in text).split()), length)


def safe_file_name(name: str) -> str:
    """Convert any text to a file name that is valid on any file system and in a URL.

    A changed name ends in a digest of the text, so that distinct names stay distinct.
    """
    safe = re.sub(r"[^\w.\- ]", "_", name).strip(" ")
    safe = re.sub(r"^\.+", "_", safe) or "_"
    if safe == name and len(safe.encode()) <= _MAX_FILE_NAME_BYTES:
        return safe
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:8]
    short = safe.encode(errors="replace")[: _MAX_FILE_NAME_BYTES - 9].decode(errors="ignore")
    return f"{short}-{digest}"


def is_metric_value(value: object) -> bool:
    """Return whether a value is a real number: NaN and infinity are, booleans are not."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def mlflow_metrics(result: Mapping[str, Any]) -> dict[str, float]:
    """Return the reported numbers and the total time of a result; nested names joined by ``/``.

    Metrics of the best epoch, where a trial keeps that, are among them.
    """
    kept = {name: value for name, value in result.items() if name.startswith(KEPT)}
    metrics = {
        mlflow_key(name): float(value)
        for name, value in flatten({**reported_metrics(result), **kept}).items()
        if is_metric_value(value)
    }
    time_total = result.get("time_total_s")
    if is_metric_value(time_total):
        metrics[TIME_TOTAL] = float(time_total)  # type: ignore[arg-type]
    return metrics


def mlflow_params(config: Mapping[str, Any]) -> dict[str, str]:
    """Convert a config to MLflow parameters: flat text values of at most 6000 characters."""
    return {
        mlflow_key(name): truncate(str(value), MAX_PARAM_LENGTH)
        for name, value in flatten(config).items()
    }
