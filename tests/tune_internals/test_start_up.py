"""A run starts without importing MLflow, and in worker processes that Ray has started."""

import subprocess
import sys

import pytest
from ray.air._internal import usage
from ray.tune import Callback, Trainable
from ray.tune.execution.class_cache import DEFAULT_ENV_VARS, _ActorClassCache
from ray.tune.logger import JsonLoggerCallback, LoggerCallback

from tune_tf.tune_internals.start_up import fast_start_up

COUNT = """
import sys
from ray.air._internal import usage
from ray.tune import Callback
from tune_tf.tune_internals.start_up import fast_start_up

class Own(Callback):
    pass

with fast_start_up():
    usage.tag_callbacks([Own()])
assert "mlflow" not in sys.modules
usage.tag_callbacks([Own()])
assert "mlflow" in sys.modules, "Ray no longer imports MLflow here: remove the patch"
"""


class _Own(Callback):
    pass


class _OwnLogger(LoggerCallback):
    pass


def test_the_count_of_callbacks_imports_mlflow_outside_of_the_context_only():
    done = subprocess.run([sys.executable, "-c", COUNT], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "callbacks",
    [None, [], [_Own(), _Own(), _OwnLogger()], [_Own(), JsonLoggerCallback()]],
    ids=["None", "none", "own", "one of Ray's"],
)
def test_the_count_is_that_of_ray(callbacks):
    expected = usage._count_callbacks(callbacks)
    with fast_start_up():
        found = usage._count_callbacks(callbacks)

    assert dict(found) == dict(expected)


def test_trials_have_no_environment_of_their_own_within_the_context_only(monkeypatch):
    for name in set(DEFAULT_ENV_VARS) | {"RAY_CHDIR_TO_TRIAL_DIR"}:
        monkeypatch.delenv(name, raising=False)

    def environment():
        remote = _ActorClassCache().get(type("Trial", (Trainable,), {}))
        return remote._default_options["runtime_env"].get("env_vars", {})

    with fast_start_up():
        assert environment() == {}
        monkeypatch.setenv("RAY_CHDIR_TO_TRIAL_DIR", "0")
        assert environment() == {"RAY_CHDIR_TO_TRIAL_DIR": "0"}
    assert environment() == {**DEFAULT_ENV_VARS, "RAY_CHDIR_TO_TRIAL_DIR": "0"}
    assert DEFAULT_ENV_VARS, "Tune sets no variable any more: remove the patch"
