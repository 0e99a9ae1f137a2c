"""What a sweep file says of disk space."""

import re
from typing import Annotated, Final, Literal

from pydantic import PlainValidator, WithJsonSchema

from tune_tf.config.error_text import shortened

_UNITS: Final[dict[str, int]] = {
    "": 1,
    "b": 1,
    **{unit: 1000**power for power, unit in enumerate(("kb", "mb", "gb", "tb"), start=1)},
    **{unit: 1024**power for power, unit in enumerate(("kib", "mib", "gib", "tib"), start=1)},
}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")


def _kept(value: object) -> int | Literal["all"]:
    if value == "all":
        return "all"
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    raise ValueError(f"must be a whole number of at least 1, or all, not {shortened(value)}")


def _num_bytes(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match and match[2].lower() in _UNITS:
        return round(float(match[1]) * _UNITS[match[2].lower()])
    raise ValueError(
        "must be a number of bytes, or one with kB, MB, GB, TB (1 kB is 1000 bytes) or KiB, MiB, "
        f"GiB, TiB, such as 2 GB, not {shortened(value)}: put 0 for no limit"
    )


KeepCheckpoints = Annotated[
    int | Literal["all"],
    PlainValidator(_kept),
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
"""A size in bytes, which may be given as text with a unit."""


def told_bytes(num_bytes: int) -> str:
    """Return a size as people read it: ``1.5 GB``."""
    for unit, factor in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if num_bytes >= factor:
            return f"{num_bytes / factor:.3g} {unit}"
    return f"{num_bytes} B"
