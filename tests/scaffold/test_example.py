"""Ready sweep files of ``init --example``, and the wheel that brings them along."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tune_tf.cli import app
from tune_tf.config import SweepConfig
from tune_tf.errors import InvalidSettingsError
from tune_tf.scaffold import write_example
from tune_tf.scaffold.init_sweep import example_names

ROOT = Path(__file__).parents[2]


def test_all_files_of_the_folder_are_examples(tmp_path):
    files = {path.stem: path.read_text() for path in (ROOT / "search_spaces").glob("*.yaml")}
    assert example_names() == sorted(files)
    for name in example_names():
        output, schema = write_example(name, tmp_path / f"{name}.yaml", force=False)
        assert output.read_text() == files[name]
    assert json.loads(schema.read_text())["title"] == "SweepConfig"


def test_the_verb_writes_a_sweep_that_runs_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["init", "--example", "digits"])
    assert "Wrote sweep.yaml, sweep.schema.json\nSearch with: tune-tf run" in done.output
    assert SweepConfig.from_yaml("sweep.yaml").name == "digits-cnn"


def test_an_unknown_example_and_an_existing_file_are_refused(tmp_path):
    with pytest.raises(
        InvalidSettingsError, match=r"did you mean 'digits_cnn'\?; the examples are"
    ):
        write_example("digit_cnn", tmp_path / "a.yaml", force=False)
    (tmp_path / "a.yaml").write_text("mine")
    with pytest.raises(InvalidSettingsError, match=r"exists: .*add --force"):
        write_example("digits", tmp_path / "a.yaml", force=False)
    assert (tmp_path / "a.yaml").read_text() == "mine"
    write_example("digits", tmp_path / "a.yaml", force=True)
    assert SweepConfig.from_yaml(tmp_path / "a.yaml").name == "digits-cnn"


@pytest.mark.tf
@pytest.mark.cluster
@pytest.mark.slow
def test_the_wheel_alone_inits_runs_and_reports(tmp_path):
    """Build the wheel, and use it without the checkout; other packages are those of the tests."""

    def run(*command, cwd=tmp_path, **env):
        done = subprocess.run(
            list(map(str, command)),
            cwd=cwd,
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout

    pip = (sys.executable, "-m", "pip")
    source = tmp_path / "source"
    run("git", "clone", "-q", ROOT, source)  # a build writes into the folder that it builds
    run(*pip, "wheel", "-q", "--no-deps", "-w", tmp_path / "dist", source)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "tune_tf/scaffold/examples/digits_cnn.yaml" in names
    assert "tune_tf/py.typed" in names
    assert not [name for name in names if name.startswith(("tests", "search_spaces"))]
    run(*pip, "install", "-q", "--no-deps", "--target", tmp_path / "site", wheel)
    work = tmp_path / "work"
    work.mkdir()

    def verb(*arguments):
        code = "import sys; from tune_tf.cli import main; sys.exit(main())"
        path = str(tmp_path / "site")
        return run(sys.executable, "-c", code, *arguments, cwd=work, PYTHONPATH=path)

    verb("init", "--example", "digits_mlp")
    where = "import tune_tf; print(tune_tf.__file__)"
    path = run(sys.executable, "-c", where, cwd=work, PYTHONPATH=str(tmp_path / "site"))
    assert path.startswith(str(tmp_path / "site"))
    verb("run", "sweep.yaml", "budget.num_samples=2", "epochs=2")
    verb("report", "digits-mlp")
    assert list(work.glob("sweeps/digits-mlp-*/report/report.html"))
