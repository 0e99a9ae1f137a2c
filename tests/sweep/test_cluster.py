"""Which Ray cluster a sweep runs on, and what its processes get."""

import pytest

from tune_tf.config import ClusterSettings, SweepConfig
from tune_tf.errors import InvalidSettingsError


@pytest.fixture
def folder(tmp_path):
    """A folder of a sweep file, with code in it."""
    (tmp_path / "models").mkdir()
    (tmp_path / "needed.txt").write_text("a\n")
    return tmp_path


@pytest.fixture
def given_to(folder):
    """Return what Ray is to give the processes."""
    from tune_tf.sweep.cluster import runtime_env

    def given_to(**environment):
        settings = ClusterSettings(runtime_env=environment or None)
        return runtime_env(settings, folder)

    return given_to


def test_a_cluster_of_our_own_gives_nothing(given_to):
    assert given_to() is None


def test_paths_are_relative_to_the_sweep_file(given_to, folder):
    given = given_to(working_dir=".", py_modules=["models", "s3://b/c.zip"], pip="needed.txt")
    assert given == {
        "working_dir": str(folder),
        "py_modules": [str(folder / "models"), "s3://b/c.zip"],
        "pip": str(folder / "needed.txt"),
    }


def test_secrets_are_read_from_the_environment(given_to, monkeypatch):
    monkeypatch.setenv("DATA_TOKEN", "s3cret/with slashes")
    given = given_to(env_vars={"TOKEN_OF_DATA": "${DATA_TOKEN}", "MODE": "a=b"})
    assert given == {"env_vars": {"TOKEN_OF_DATA": "s3cret/with slashes", "MODE": "a=b"}}


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        ({"pips": []}, "cluster.runtime_env.pips: unknown key; did you mean 'pip'"),
        ({"env_vars": {"A": 1}}, r"runtime_env\.env_vars\.A: must be text, not 1"),
        ({"env_vars": ["A"]}, "env_vars: must be a mapping of names to text"),
        (
            {"env_vars": {"API_TOKEN": "abcdef123456"}},
            r"env_vars\.API_TOKEN: looks like a secret: write \$\{API_TOKEN\}",
        ),
    ],
    ids=["an unknown key", "a number", "no mapping", "a secret"],
)
def test_a_wrong_environment_is_refused(environment, text):
    with pytest.raises(InvalidSettingsError, match=text):
        sweep_with(cluster={"runtime_env": environment})


def sweep_with(**settings):
    return SweepConfig.from_dict(
        {
            "name": "a",
            "workload": "a:B",
            "objective": {"metric": "m", "mode": "min"},
            "space": {"w": {"int": [1, 2]}},
            "budget": {"num_samples": 1},
            **settings,
        }
    )
