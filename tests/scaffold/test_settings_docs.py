"""What tells a user which settings there are: the JSON schema, and the page about it."""

import pytest
from documented import BLOCK, ROOT

from tune_tf.config import SweepConfig
from tune_tf.errors import InvalidSettingsError
from tune_tf.space.document import YamlDocument


def properties_of(schema, path=""):
    """Yield the dotted path and the schema of each setting."""
    for name, setting in schema.get("properties", {}).items():
        yield f"{path}{name}", setting
    for name, each in schema.get("$defs", {}).items():
        yield from properties_of(each, f"{name}.")


def test_the_schema_describes_each_setting():
    schema = dict(properties_of(SweepConfig.model_json_schema()))
    assert [
        name for name, it in schema.items() if not it.get("description", "").endswith(".")
    ] == []
    assert len(schema) > 50


def test_the_page_of_settings_shows_each_setting_of_the_top_level():
    page = (ROOT / "docs" / "settings.md").read_text()
    ((_, example),) = BLOCK.findall(page)
    assert YamlDocument.parse(example).data.keys() == SweepConfig.model_fields.keys()


def test_an_unknown_key_names_the_schema():
    with pytest.raises(InvalidSettingsError, match="`tune-tf init --schema` explains them"):
        SweepConfig.from_dict({"sede": 1})
