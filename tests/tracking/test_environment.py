import json
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

AWS = "AKIA" + "Q7" * 8


@pytest.fixture
def environment():
    from tune_tf.tracking import environment

    return environment


def test_packages_are_listed_as_pip_freeze_does(environment):
    lines = environment.packages().splitlines()
    assert f"optuna=={version('optuna')}" in lines
    assert lines == sorted(set(lines), key=str.lower)


def test_the_machine_is_told_with_its_units(environment):
    machine = json.loads(environment.hardware())
    assert machine["memory_bytes"] > 2**20
    assert machine["cpu_cores"] >= machine["usable_cpu_cores"] >= 1
    assert machine["cpu"]


@pytest.mark.parametrize(
    ("text", "name"),
    [("processor: 0\nmodel name\t: Fast CPU @ 2GHz\nmodel name\t: Other\n", "Fast CPU @ 2GHz")],
)
def test_the_processor_is_the_first_that_linux_names(environment, tmp_path, text, name):
    (tmp_path / "cpuinfo").write_text(text)
    assert environment.cpu_model(tmp_path / "cpuinfo") == name


def test_cpu_model_falls_back_to_python_without_proc_cpuinfo(environment, tmp_path):
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
def test_gpus_are_told_as_their_driver_tells_them(environment, tmp_path, monkeypatch, script, gpus):
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert environment.gpus() == gpus


def test_the_diff_is_an_artifact_without_its_secrets(environment, tmp_path):
    from tune_tf.tracking.environment import Repository

    (tmp_path / "train.py").write_text("key = ''\n")
    for command in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-q", "-m", "first"],
    ):
        subprocess.run(["git", "-C", tmp_path, *command], check=True)
    Path(tmp_path / "train.py").write_text(f"key = '{AWS}'\n")
    texts = environment.environment_artifacts(Repository(tmp_path))
    assert texts.keys() == {
        "environment/packages.txt",
        "environment/hardware.json",
        "environment/git.diff",
    }
    assert "+key = '***'" in texts["environment/git.diff"]


def test_what_a_resume_runs_on_stands_beside_what_the_start_ran_on(environment):
    (path,) = environment.resume_artifacts({"environment/packages.txt": "a==1\n"})
    assert path.startswith("environment/resumed-")
    assert path.endswith("/packages.txt")
