"""The JSON schema of sweep files, as editors use it."""

import json
from pathlib import Path

import jsonschema
import pytest
from ruamel.yaml import YAML

from tune_tf.config import SCHEMA_COMMENT, SCHEMA_FILE, schema_text

READY = Path(__file__).parents[2] / "search_spaces"
FILES = sorted(READY.glob("*.yaml"))


@pytest.fixture(scope="module")
def errors_in():
    """Return the errors that an editor finds in the text of a sweep file."""
    schema = json.loads(schema_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    yaml = YAML(typ="safe")
    return lambda text: [error.message for error in validator.iter_errors(yaml.load(text))]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_ready_sweep_file_names_the_schema_and_keeps_it(path, errors_in):
    text = path.read_text()
    assert text.splitlines()[0] == SCHEMA_COMMENT
    assert errors_in(text) == []


def test_the_schema_beside_the_ready_sweep_files_is_that_of_the_settings():
    assert (READY / SCHEMA_FILE).read_text() == schema_text()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("num_samples", "num_sample"), "num_sample"),
        (("mode: max", "mode: up"), "up"),
        (("name: auto", "name: ashes"), "ashes"),
        (("cpus: 1", "cpus: one"), "one"),
    ],
    ids=["an unknown key", "a wrong mode", "a wrong scheduler", "text for a number"],
)
def test_an_editor_finds_a_fault(change, expected, errors_in):
    text = (READY / "digits_cnn.yaml").read_text()
    assert any(expected in error for error in errors_in(text.replace(*change)))


def test_a_sweep_file_may_leave_the_space_to_its_workload(errors_in):
    text = "{name: a, workload: a:b, objective: {metric: m, mode: min}, budget: {num_samples: 1}}"
    assert errors_in(text) == []
