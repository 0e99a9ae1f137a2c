"""Page of all settings of a sweep file, made from their JSON schemas."""

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tune_tf.config import SweepConfig
from tune_tf.config.settings import Settings, plain_text
from tune_tf.searchers.samplers.catalogue import SAMPLER_KINDS
from tune_tf.space.document import inline_yaml
from tune_tf.workloads.arrays import ArraysModel
from tune_tf.workloads.image_folder import ImageFolderCNN
from tune_tf.workloads.keras_datasets import KerasDatasetModel
from tune_tf.workloads.settings_workload import DataSettings, SettingsWorkload
from tune_tf.workloads.tabular import TabularMLP
from tune_tf.workloads.tfrecords import FeatureSettings, TFRecordsModel

WORKLOADS: Final[tuple[type[SettingsWorkload[Any, Any, Any]], ...]] = (
    TabularMLP,
    ImageFolderCNN,
    ArraysModel,
    TFRecordsModel,
    KerasDatasetModel,
)

_INTRODUCTION: Final = """# All settings

Every setting of a sweep file, as `tune-tf schema --output settings.md` writes it for the installed
version: this page is generated, not edited. `a.b` is the key `b` in the section `a`. The example is
a line of the file; `--set a.b=value` sets the same from the shell, and `tune_tf.search` takes
sections as arguments.

Guides: [search](search.md), [parallelism](parallelism.md), [data](data.md),
[tracking](tracking.md), [disk](disk.md), [clusters](clusters.md).
"""

_UNIT: Final = re.compile(
    r"\b(seconds|hours|bytes|pixels|iterations|epochs|trials|restarts|seed|share|fraction|factor"
    r"|probability|cpus?|gpus|replicas|workers|processes|stages|models|folds|splits|members|pieces"
    r"|updates|classes|rows|words|grey|value)\b",
    re.IGNORECASE,
)
_UNITS: Final = {
    "cpu": "CPU cores",
    "cpus": "CPUs",
    "gpus": "GPUs",
    "seed": "-",
    "grey": "channels",
}
"""Unit by the word that tells it, where it is another one."""


@dataclass(frozen=True)
class SettingRow:
    """Setting of a sweep file as the page describes it.

    Args:
        path: Dotted path in the file.
        schema: Its JSON schema.
        required: Whether it has no default.
        fixed: Settings of its section that select the kind to which it belongs.
    """

    path: str
    schema: Mapping[str, Any]
    required: bool
    fixed: Mapping[str, Any] = field(default_factory=dict)

    @property
    def unit(self) -> str | None:
        """Unit of a number, as its sentence names it; None for other settings."""
        if not any(
            each.get("type") in ("integer", "number") for each in _alternatives(self.schema)
        ):
            return None
        match = _UNIT.search(self.schema.get("description", ""))
        return _UNITS.get(match[1].lower(), match[1].lower()) if match else None

    @property
    def example(self) -> dict[str, Any]:
        """Section of a sweep file that sets it; not to its default, where there is a choice."""
        *sections, name = self.path.split(".")
        example: dict[str, Any] = {**self.fixed, name: _example(self.schema)}
        for section in reversed(sections):
            example = {section: example}
        return example

    def cells(self) -> list[str]:
        """Return the cells of its row."""
        default = "required" if self.required else _default(self.schema)
        text = re.sub(r"\bNone\b", "`null`", self.schema["description"])
        example = inline_yaml(self.example)[1:-1]
        return [
            f"`{self.path}`",
            _type(self.schema),
            default,
            self.unit or "-",
            text,
            f"`{example}`",
        ]


@dataclass(frozen=True)
class SettingsSection:
    """Section of the page: a heading, a sentence and the settings."""

    title: str
    text: str
    rows: tuple[SettingRow, ...]


def settings_sections() -> Iterator[SettingsSection]:
    """Return the sections of the page in the order of a sweep file."""
    schema = SweepConfig.json_schema()
    top = _resolved(schema, schema["$defs"])
    yield _section("Top level", top, "")
    for name, setting in top["properties"].items():
        if name == "data":
            yield from _data_sections()
        elif name == "space":
            [kinds, _] = setting["additionalProperties"]["anyOf"]
            text = "Parameters; both ends of a range are included."
            yield _section("`space`", {**kinds, "description": text}, "space.NAME.")
        kinds = [each for each in _alternatives(setting) if "properties" in each]
        for kind in kinds:
            fixed = {
                key: each["const"]
                for key, each in kind["properties"].items()
                if "const" in each and len(kinds) > 1
            }
            title = f"{name}: {inline_yaml(fixed)}" if fixed else name
            yield _section(f"`{title}`", kind, f"{name}.", fixed)


def _data_sections() -> Iterator[SettingsSection]:
    shared = _schema_of(DataSettings)
    yield _section("`data` of every ready workload", shared, "data.")
    for workload in WORKLOADS:
        schema = _schema_of(workload.settings_class)
        own = {
            name: each
            for name, each in schema["properties"].items()
            if name not in shared["properties"]
        }
        title = f"`data` of `{workload.__module__}:{workload.__name__}`"
        yield _section(title, {**schema, "properties": own}, "data.")
        if workload is TFRecordsModel:
            feature = _schema_of(FeatureSettings)
            yield _section("`data.features`", feature, "data.features.NAME.")


def _schema_of(settings: type[Settings]) -> Any:
    schema = settings.json_schema()
    return _resolved(schema, schema.get("$defs", {}))


def _section(
    title: str, schema: Mapping[str, Any], prefix: str, fixed: Mapping[str, Any] | None = None
) -> SettingsSection:
    required = schema.get("required", ())
    rows = tuple(
        SettingRow(f"{prefix}{name}", setting, name in required, fixed or {})
        for name, setting in schema["properties"].items()
        if name not in (fixed or {})
    )
    return SettingsSection(title, schema.get("description", ""), rows)


def settings_page() -> str:
    """Return the page of all settings as Markdown."""
    parts = [_INTRODUCTION]
    header = ["setting", "type", "default", "unit", "meaning", "example"]
    for section in settings_sections():
        parts += [f"## {section.title}\n", f"{section.text}\n"]
        parts.append(_table(header, [row.cells() for row in section.rows]))
        if section.title == "`searcher`":
            parts += ["Samplers; `arguments` are those of Optuna's class:\n", _samplers()]
    return "\n".join(parts)


def _samplers() -> str:
    rows = []
    for name, kind in SAMPLER_KINDS.items():
        able = {
            "choices": kind.choices,
            "ranges": kind.continuous,
            "conditions": not kind.grid,
            "several objectives": kind.multi_objective,
            "constraints": kind.constraints,
        }
        about = inspect.cleandoc(kind.optuna.__doc__ or "").partition("\n\n")[0]
        plain = plain_text(re.sub(r"`(\w+) <[^>]+>`__", r"\1", about))
        supports = ", ".join(word for word, can in able.items() if can)
        needs = f"`tune-tf[{kind.extra}]`" if kind.extra else "-"
        rows.append([f"`{name}`", plain, supports, needs])
    return _table(["`searcher.sampler`", "Optuna's words", "supports", "needs"], rows)


def _table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(_cell(text) for text in line)} |\n" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _resolved(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """Return a JSON schema with its references replaced."""
    if isinstance(schema, list):
        return [_resolved(each, definitions) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        schema = {**definitions[name], **{key: schema[key] for key in schema if key != "$ref"}}
    return {key: _resolved(each, definitions) for key, each in schema.items() if key != "$defs"}


def _alternatives(schema: Mapping[str, Any]) -> list[Any]:
    """Return the schemas of which a value keeps one; nested ones are flattened."""
    nested = schema.get("anyOf") or schema.get("oneOf")
    if nested is None:
        return [schema]
    return [flat for each in nested for flat in _alternatives(each)]


def _type(schema: Mapping[str, Any]) -> str:
    """Return what values a setting takes."""
    return " or ".join(dict.fromkeys(map(_type_of_one, _alternatives(schema))))


def _type_of_one(schema: Mapping[str, Any]) -> str:
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    names = {"object": "mapping", "array": "list", "string": "text", "null": "`null`"}
    name = names.get(schema.get("type", ""), schema.get("type", "any value"))
    bounds = {"minimum": "at least", "exclusiveMinimum": "above", "exclusiveMaximum": "below"}
    limits = [f"{word} {schema[key]:g}" for key, word in bounds.items() if key in schema]
    return " ".join([name, " and ".join(limits)]).strip()


def _default(schema: Mapping[str, Any]) -> str:
    default = schema.get("default")
    if default in ([], "", {}) or "default" not in schema or isinstance(default, dict):
        return "-"
    return f"`{inline_yaml(default)}`"


def _example(schema: Mapping[str, Any]) -> Any:
    """Return a value of a setting: a given one, or one that is not the default."""
    if "examples" in schema:
        return schema["examples"][0]
    default = schema.get("default")
    values = [
        value
        for each in _alternatives(schema)
        for value in each.get("enum", [each["const"]] if "const" in each else [])
    ]
    if isinstance(default, bool):
        return not default
    if isinstance(default, int | float) and not values:
        return default / 2 if isinstance(default, float) else 2 * default or 1
    return next((value for value in values if value != default), default)
