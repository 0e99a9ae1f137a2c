"""Failed trials that lost a process, and those that raised an error."""

from types import SimpleNamespace

import pytest
from ray.exceptions import OutOfMemoryError, RayActorError

from tune_tf.errors import WorkerError, WorkerLostError
from tune_tf.tune_internals.killed_actors import KilledActorError
from tune_tf.tune_internals.trial_state import was_lost


def raised(cause):
    """Return the text of a ``RayTaskError``, as Ray writes it in a worker."""
    place = "\x1b[36mray::Trainable.train()\x1b[39m (pid=17, ip=127.0.0.1, actor_id=a)"
    return f"{place}\n  File x, line 1\n{type(cause).__module__}.{type(cause).__name__}: {cause}"


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (RayActorError(None, "The actor died unexpectedly before finishing this task."), True),
        (KilledActorError(OutOfMemoryError("low on memory")), True),
        (raised(WorkerLostError("worker 1 is silent")), True),
        (raised(WorkerError("worker 1: ValueError")), False),
        (raised(ValueError("units")), False),
        ("Task was killed as the node is low on memory: ray::Trainable.train", True),
        (RayActorError(None, "The actor died: an error raised in its creation task, x"), False),
    ],
    ids=["process", "memory", "worker", "worker's error", "error", "killed", "error in setup"],
)
def test_a_lost_process_is_told_from_an_error(error, lost, tmp_path):
    path = tmp_path / "error.txt"  # as Tune writes it, after an earlier failure
    path.write_text(f"Failure # 1 (occurred at noon)\nTraceback x\nFailure # 2 (at one)\n{error}\n")
    assert was_lost(SimpleNamespace(error_file=str(path))) is lost
