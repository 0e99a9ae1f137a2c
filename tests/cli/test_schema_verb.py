import json

import pytest
from typer.testing import CliRunner

from tune_tf.cli import app
from tune_tf.config import SweepConfig


@pytest.fixture
def run():
    return lambda *arguments: CliRunner().invoke(app, ["schema", *arguments])


def test_the_schema_is_printed_as_it_is(run):
    done = run()
    assert done.exit_code == 0
    assert json.loads(done.stdout) == SweepConfig.json_schema()


def test_the_schema_is_written_to_a_file(run, tmp_path):
    path = tmp_path / "a.json"
    done = run("--output", str(path), "--json")
    assert json.loads(done.stdout) == {"path": str(path)}
    assert json.loads(path.read_text()) == SweepConfig.json_schema()
