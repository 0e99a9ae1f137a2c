"""Failed trials that lost a process, and those that raised an error."""

from types import SimpleNamespace

import pytest
from ray import cloudpickle
from ray.exceptions import OutOfMemoryError, RayActorError, RayTaskError

from tune_tf.errors import WorkerError, WorkerLostError
from tune_tf.tune_internals.killed_actors import KilledActorError
from tune_tf.tune_internals.trial_state import was_lost


def raised(cause):
    return RayTaskError("train", "Traceback ...", cause)


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (RayActorError(None, "The actor died unexpectedly before finishing this task."), True),
        (KilledActorError(OutOfMemoryError("low on memory")), True),
        (raised(WorkerLostError("worker 1 is silent")), True),
        (raised(WorkerError("worker 1: ValueError")), False),
        (raised(ValueError("units")), False),
        (RayActorError(None, "The actor died: an error raised in its creation task, x"), False),
    ],
    ids=["process", "memory", "worker", "worker's error", "error", "error in setup"],
)
def test_a_lost_process_is_told_from_an_error(error, lost, tmp_path):
    path = tmp_path / "error.pkl"
    path.write_bytes(cloudpickle.dumps(error))
    assert was_lost(SimpleNamespace(pickled_error_file=str(path))) is lost
