"""What a run is told of the code, the packages and the machine."""

import json
import subprocess
from importlib.metadata import version

import pytest

from tune_tf.tracking import environment
from tune_tf.tracking.environment import GIT_COMMIT, GIT_DIRTY_TAG, Repository

AWS = "AKIA" + "Q7" * 8


@pytest.fixture
def repository(tmp_path):
    """A repository with one commit of one script."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text("rate = 1\n")
    for command in (
        ["init", "-q", "-b", "trunk"],
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-q", "-m", "first"],
        ["remote", "add", "origin", "https://example.org/code.git"],
    ):
        subprocess.run(["git", "-C", folder, *command], check=True)
    return Repository(folder)


def test_packages_are_listed_as_pip_freeze_does():
    lines = environment.packages().splitlines()
    assert f"optuna=={version('optuna')}" in lines
    assert lines == sorted(set(lines), key=str.lower)


def test_the_machine_is_told_with_its_units():
    machine = json.loads(environment.hardware())
    assert machine["memory_bytes"] > 2**20
    assert machine["cpu_cores"] >= machine["usable_cpu_cores"] >= 1
    assert machine["cpu"]


def test_the_processor_is_the_first_that_linux_names_or_pythons(tmp_path):
    (tmp_path / "cpuinfo").write_text("processor: 0\nmodel name\t: Fast\nmodel name\t: Other\n")
    assert environment.cpu_model(tmp_path / "cpuinfo") == "Fast"
    assert environment.cpu_model(tmp_path / "missing")


@pytest.mark.parametrize(
    ("script", "gpus"),
    [
        (
            "echo 'NVIDIA H100, 81559 MiB, 550.54'; echo odd",
            [{"name": "NVIDIA H100", "memory.total": "81559 MiB", "driver_version": "550.54"}],
        ),
        ("exit 9", []),
    ],
    ids=["one", "broken driver"],
)
def test_gpus_are_told_as_their_driver_tells_them(tmp_path, monkeypatch, script, gpus):
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert environment.gpus() == gpus


def test_a_commit_and_its_changes_are_told_without_secrets(repository):
    (repository.folder / "notes.txt").write_text("not tracked")
    tags = repository.tags()
    assert len(tags.pop(GIT_COMMIT)) == 40
    assert tags == {
        "mlflow.source.git.branch": "trunk",
        "mlflow.source.git.repoURL": "https://example.org/code.git",
        GIT_DIRTY_TAG: "false",
    }
    assert "environment/git.diff" not in environment.environment_artifacts(repository)

    (repository.folder / "train.py").write_text(f"key = '{AWS}'\n" * 50_000)
    assert repository.tags()[GIT_DIRTY_TAG] == "true"
    diff = environment.environment_artifacts(repository)["environment/git.diff"]
    assert "-rate = 1\n+key = '***'\n" in diff
    assert len(diff) < 263_000
    assert diff.splitlines()[-1].startswith("# cut here: ")


def test_the_scripts_repository_precedes_that_of_the_working_directory(repository, tmp_path):
    script, python = str(repository.folder / "train.py"), tmp_path / "python"
    assert Repository.of(script, tmp_path, python) == repository
    for other in ("", "-c"):
        assert Repository.of(other, repository.folder, python) == repository
    assert Repository.of(script, tmp_path, repository.folder) is None  # an installed one
    assert Repository.of("", tmp_path, python) is None


def test_without_git_nothing_is_known(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert Repository.of("", tmp_path, tmp_path) is None
    assert Repository(tmp_path).tags() == {}


def test_what_a_resume_runs_on_stands_beside_what_the_start_ran_on():
    (path,) = environment.resume_artifacts({"environment/packages.txt": "a==1\n"})
    assert path.startswith("environment/resumed-")
    assert path.endswith("/packages.txt")
