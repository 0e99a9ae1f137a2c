"""Settings and configs as YAML."""

import io
from collections.abc import Mapping
from typing import Any

from ruamel.yaml import YAML


def yaml_text(values: Mapping[str, Any], *, inline_leaves: bool = True) -> str:
    """Return a mapping of plain data as safe YAML, in its order.

    Args:
        values: The mapping.
        inline_leaves: Whether mappings and lists of nothing but values stand in one line.
    """
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = None if inline_leaves else False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    text = io.StringIO()
    yaml.dump(dict(values), text)
    return text.getvalue()
