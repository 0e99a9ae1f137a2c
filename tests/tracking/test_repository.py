import subprocess

import pytest

from tune_tf.tracking.environment import GIT_COMMIT, GIT_DIRTY_TAG, Repository


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


def test_a_commit_without_changes_is_clean(repository):
    tags = repository.tags()
    assert len(tags.pop(GIT_COMMIT)) == 40
    assert tags == {
        "mlflow.source.git.branch": "trunk",
        "mlflow.source.git.repoURL": "https://example.org/code.git",
        GIT_DIRTY_TAG: "false",
    }
    assert repository.diff() == ""


def test_a_changed_file_is_dirty_and_stands_in_the_diff(repository):
    (repository.folder / "train.py").write_text("rate = 2\n")
    assert repository.tags()[GIT_DIRTY_TAG] == "true"
    assert "-rate = 1\n+rate = 2\n" in repository.diff()


def test_a_file_that_git_does_not_track_changes_nothing(repository):
    (repository.folder / "notes.txt").write_text("x")
    assert repository.tags()[GIT_DIRTY_TAG] == "false"


def test_a_long_diff_is_cut_and_says_so(repository):
    (repository.folder / "train.py").write_text("rate = 2\n" * 50_000)
    diff = repository.diff()
    assert len(diff) < 263_000
    assert diff.splitlines()[-1].startswith("# cut here: ")


def test_the_scripts_repository_precedes_that_of_the_working_directory(repository, tmp_path):
    script = str(repository.folder / "train.py")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    found = Repository.of(script, elsewhere, tmp_path / "python")
    assert found is not None
    assert found.folder == repository.folder


@pytest.mark.parametrize("script", ["", "-c", "bin/tune-tf"], ids=["none", "code", "installed"])
def test_without_a_script_of_its_own_the_working_directory_counts(repository, tmp_path, script):
    installed = tmp_path / "code" / "bin"
    installed.mkdir()
    (installed / "tune-tf").touch()
    assert Repository.of(script, repository.folder, installed) == repository


def test_where_there_is_no_repository_there_is_none(tmp_path):
    assert Repository.of("", tmp_path, tmp_path / "python") is None


def test_without_git_nothing_is_known(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert Repository.of("", tmp_path, tmp_path) is None
    assert Repository(tmp_path).tags() == {}
