"""The JSON schema of a sweep file as editors read it."""

import inspect
import re
from collections.abc import Mapping
from typing import Any

DIALECT = "https://json-schema.org/draft/2020-12/schema"
"""What the schema is written in."""

_ARGUMENT = re.compile(r"^(\w+): ", re.MULTILINE)


def for_editors(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema in which every setting tells what it is, where its class tells it.

    An editor shows the description of a single setting; that of its class, with all arguments in
    one text, helps nobody.

    Args:
        schema: As pydantic makes it, with docstrings of classes as descriptions.
    """
    definitions = {name: _described(each) for name, each in schema.get("$defs", {}).items()}
    described = _described(schema)
    if definitions:
        described["$defs"] = definitions
    return {"$schema": DIALECT, **described}


def _described(section: Mapping[str, Any]) -> dict[str, Any]:
    summary, arguments = _docstring(str(section.get("description", "")))
    described = dict(section)
    if summary:
        described["description"] = summary
    if "properties" in section:
        described["properties"] = {
            name: {"description": arguments[name], **each} if name in arguments else dict(each)
            for name, each in section["properties"].items()
        }
    return described


def _docstring(text: str) -> tuple[str, dict[str, str]]:
    """Return what a class's docstring says of the class, and of each argument."""
    summary, _, rest = text.partition("\n\nArgs:\n")
    body = inspect.cleandoc(rest.partition("\n\n")[0])
    parts = _ARGUMENT.split(body)[1:]
    arguments = dict(zip(parts[::2], map(_plain, parts[1::2]), strict=True))
    return _plain(summary), arguments


def _plain(text: str) -> str:
    """Return a text on one line, without what Sphinx marks in it."""
    unmarked = re.sub(r":\w+:`~?(?:[\w.]+\.)?(\w+)`", r"\1", text)
    return " ".join(unmarked.replace("``", "").split())
