"""Paths of parameters: ``optimizer/learning_rate`` is ``learning_rate`` in group ``optimizer``.

Flat configs, Optuna and Ray join groups by ``/``, sweep files and errors by a dot. No name may
contain either, so the two forms convert exactly.
"""

from collections.abc import Collection, Mapping
from typing import Any

from tune_tf.errors import ErrorDetail, InvalidSettingsError

SEPARATOR = "/"


def flatten(config: Mapping[str, Any], leaves: Collection[str] = ()) -> dict[str, Any]:
    """Flatten a nested config to ``path -> value``.

    An empty group is kept as a value, and so is a mapping at one of the paths of ``leaves``.
    """
    values: dict[str, Any] = {}

    def walk(group: Mapping[str, Any], prefix: str) -> None:
        for name, value in group.items():
            path = f"{prefix}{name}"
            if isinstance(value, Mapping) and value and path not in leaves:
                walk(value, path + SEPARATOR)
            else:
                values[path] = value

    walk(config, "")
    return values


def nest(values: Mapping[str, Any]) -> dict[str, Any]:
    """Nest ``path -> value``, the inverse of :func:`flatten`.

    Raises:
        InvalidSettingsError: A path is both a value and a group.
    """
    config: dict[str, Any] = {}
    groups = {"": config}
    for path, value in values.items():
        *parents, name = path.split(SEPARATOR)
        group, prefix = config, ""
        for parent in parents:
            prefix = join(prefix, parent)
            if prefix not in groups:
                if parent in group:
                    raise InvalidSettingsError(ErrorDetail(dotted(prefix), _BOTH))
                group[parent] = groups[prefix] = {}
            group = groups[prefix]
        if name in group:
            raise InvalidSettingsError(ErrorDetail(dotted(path), _BOTH))
        group[name] = value
    return config


_BOTH = "is given as a parameter and as a group: rename one of the two"


def join(group: str, name: str) -> str:
    """Return the path of a name in a group, which is empty for the root."""
    return f"{group}{SEPARATOR}{name}" if group else name


def dotted(path: str) -> str:
    """Return a path with dots, as in sweep files and errors."""
    return path.replace(SEPARATOR, ".")


def slashed(path: str) -> str:
    """Return a path with slashes, as in flat configs."""
    return path.replace(".", SEPARATOR)


def name_error(name: object) -> str | None:
    """Return what is wrong with the name of a parameter or group, or None."""
    if not isinstance(name, str):
        return f"a name must be text, not {name!r}: put it in quotes"
    if not name or "." in name or SEPARATOR in name:
        return (
            f"a name must not be empty or contain '.' or '/', not {name!r}: those two join "
            "groups into paths"
        )
    return None
