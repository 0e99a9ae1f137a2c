"""The page of all settings: whole, up to date, and with examples that work."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tune_tf.cli import app
from tune_tf.config import SweepConfig
from tune_tf.errors import InvalidSettingsError
from tune_tf.scaffold.settings_page import WORKLOADS, settings_page, settings_sections

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"
BASE = {
    "name": "a",
    "workload": "a:b",
    "objective": {"metric": "val_accuracy", "mode": "max"},
    "space": {
        "learning_rate": {"loguniform": [1e-4, 1e-1]},
        "optimizer": {"choice": ["adam", "sgd"]},
        "batch_size": 64,
    },
    "budget": {"num_samples": 1},
}
ROWS = [row for section in settings_sections() for row in section.rows]
OF_A_SWEEP = [row for row in ROWS if not row.path.startswith("data.")]


def merged(base, example):
    """Return nested settings with those of an example."""
    if not (isinstance(base, dict) and isinstance(example, dict)):
        return example
    return {**base, **{key: merged(base.get(key), value) for key, value in example.items()}}


def test_the_page_in_the_docs_is_that_of_the_settings():
    assert PAGE.read_text() == settings_page(), "tune-tf schema --output docs/settings.md"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.path}-{row.fixed}")
def test_each_setting_has_a_sentence_and_an_example_and_each_number_a_unit(row):
    assert row.schema["description"].endswith(".")
    cells = row.cells()
    assert all(cells)
    assert "null`" not in cells[-1]
    is_number = "integer" in cells[1] or "number" in cells[1]
    assert not is_number or cells[3] != "-" or "seed" in row.path


@pytest.mark.parametrize("row", OF_A_SWEEP, ids=lambda row: f"{row.path}-{row.fixed}")
def test_an_example_is_a_valid_setting_other_than_the_default(row):
    base = merged(BASE, {"space": {"NAME": {"uniform": [0, 1]}}}) if "when" in row.path else BASE
    SweepConfig.from_dict(merged(base, row.example))
    value = row.example
    for name in row.path.split("."):
        value = value[name]
    assert value != row.schema.get("default", "none") or row.path == "searcher.name"


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda it: it.__name__)
def test_the_examples_of_a_ready_workload_are_valid_together(workload):
    own = {}
    for section in settings_sections():
        if section.title.endswith((" of every ready workload", f":{workload.__name__}`")):
            for row in section.rows:
                own |= row.example["data"]
    if workload.__name__ == "ArraysModel":
        own.pop("path")  # or x and y
    settings = workload.settings_class.from_dict(own)
    assert {name for name in own if getattr(settings, name) is not None} == set(own)


def test_the_verb_writes_the_page(tmp_path):
    path = tmp_path / "settings.md"
    done = CliRunner().invoke(app, ["schema", "--output", str(path)])
    assert done.exit_code == 0, done.output
    assert path.read_text() == settings_page()


def test_an_unknown_key_names_the_page():
    with pytest.raises(
        InvalidSettingsError, match=r"`tune-tf schema -o settings\.md` explains them"
    ):
        SweepConfig.from_dict({**BASE, "sede": 1})
