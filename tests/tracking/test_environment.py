"""What a run is told of the code, the packages and the processor."""

import subprocess
from importlib.metadata import version

from tune_tf.tracking import environment

AWS = "AKIA" + "Q7" * 8


def git(folder, *command):
    subprocess.run(["git", "-C", folder, *command], check=True)


def test_packages_are_listed_as_pip_freeze_does():
    lines = environment.packages().splitlines()
    assert f"optuna=={version('optuna')}" in lines
    assert lines == sorted(set(lines), key=str.lower)


def test_the_processor_is_the_first_that_linux_names_or_pythons(tmp_path):
    (tmp_path / "cpuinfo").write_text("processor: 0\nmodel name\t: Fast\nmodel name\t: Other\n")
    assert environment.cpu_model(tmp_path / "cpuinfo") == "Fast"
    assert environment.cpu_model(tmp_path / "missing")


def test_a_commit_and_its_changes_are_told_without_secrets(tmp_path, monkeypatch):
    script = tmp_path / "train.py"
    script.write_text("rate = 1\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-q", "-m", "first")
    monkeypatch.setattr("sys.argv", [str(script)])
    assert len(environment.git_commit()) == 40
    assert "git.diff" not in environment.environment_texts()

    script.write_text(f"key = '{AWS}'\n" * 50_000)
    diff = environment.environment_texts()["git.diff"]
    assert "-rate = 1\n+key = '***'\n" in diff
    assert AWS not in diff
    assert len(diff) < 263_000


def test_the_scripts_folder_precedes_the_working_directory(tmp_path, monkeypatch):
    (tmp_path / "code").mkdir()
    script = tmp_path / "code" / "train.py"
    script.touch()
    monkeypatch.chdir(tmp_path)
    assert environment.code_folder(str(script), tmp_path / "python") == script.parent
    for other in ("", "-c"):
        assert environment.code_folder(other, tmp_path / "python") == tmp_path
    assert environment.code_folder(str(script), script.parent) == tmp_path  # an installed one
