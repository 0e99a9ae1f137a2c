"""Disk settings of a sweep file."""

import re
from typing import Annotated, Final, Literal

from pydantic import PlainValidator, WithJsonSchema

from tune_tf.config.error_text import short_repr

_UNITS: Final[dict[str, int]] = {
    "": 1,
    "b": 1,
    **{unit: 1000**power for power, unit in enumerate(("kb", "mb", "gb", "tb"), start=1)},
    **{unit: 1024**power for power, unit in enumerate(("kib", "mib", "gib", "tib"), start=1)},
}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")


def _num_kept(value: object) -> int | Literal["all"]:
    if value == "all":
        return "all"
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    raise ValueError(f"must be an integer of at least 1, or all, not {short_repr(value)}")


def _num_bytes(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match and match[2].lower() in _UNITS:
        return round(float(match[1]) * _UNITS[match[2].lower()])
    raise ValueError(
        "must be a number of bytes, or one with kB, MB, GB, TB (1 kB is 1000 bytes) or KiB, MiB, "
        f"GiB, TiB, such as 2 GB, not {short_repr(value)}: use 0 for no limit"
    )


KeepCheckpoints = Annotated[
    int | Literal["all"],
    PlainValidator(_num_kept),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"const": "all"}]}),
]
"""How many of the best trials keep their checkpoints, or ``all``."""

NumBytes = Annotated[
    int,
    PlainValidator(_num_bytes),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0},
                {"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*([kKmMgGtT]i?)?[bB]?\s*$"},
            ],
            "description": "Bytes, or text such as 2 GB; 0 for no limit.",
        }
    ),
]
"""Size in bytes, or text with a unit."""
