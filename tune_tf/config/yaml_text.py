"""YAML output of settings and configs."""

import io
from collections.abc import Mapping
from typing import Any

from ruamel.yaml import YAML


def yaml_text(values: Mapping[str, Any], *, inline_leaves: bool = True) -> str:
    """Dump a mapping of plain data as safe YAML, in order.

    Args:
        values: Mapping to dump.
        inline_leaves: Whether mappings and lists of plain values are written on one line.
    """
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = None if inline_leaves else False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    text = io.StringIO()
    yaml.dump(dict(values), text)
    return text.getvalue()
