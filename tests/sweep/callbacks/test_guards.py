"""What is told of a workload that its sweep's first trials refuse."""

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from ray import tune

from tune_tf.errors import UnwritableStorageError, WorkloadError
from tune_tf.sweep.callbacks import guards
from tune_tf.sweep.callbacks.guards import BrokenWorkloadCheck, unwrap_tune_errors

TRACEBACK = """Traceback (most recent call last):
  File "loads.py", line 1, in load
tune_tf.errors.WorkloadError: record 3 (a.png): cannot be read;
  mend it
Raised at:
  File "image.py", line 2, in open
UnidentifiedImageError: a.png
"""


class Trial:
    """A trial that reported nothing."""

    last_result = None


@pytest.fixture
def error_of(monkeypatch):
    """Return a function that sets what a trial's error file says."""
    monkeypatch.setattr(guards, "latest_result", lambda trial: trial.last_result)
    return lambda text: monkeypatch.setattr(guards, "trial_error", lambda trial: text)


def test_the_message_is_told_without_the_traceback_of_another_process(error_of):
    error_of(TRACEBACK)
    trial, check = Trial(), BrokenWorkloadCheck()
    check.on_trial_error(iteration=1, trials=[trial], trial=trial)

    with pytest.raises(WorkloadError, match=r"^record 3 \(a.png\): cannot be read;\n  mend it$"):
        check.on_step_end(iteration=1, trials=[trial])  # after the record has the failure


FOLDER = SimpleNamespace(path=Path("/sweeps/small-20261126-120450"))
UNWRITABLE = {
    "read-only": OSError(errno.EROFS, os.strerror(errno.EROFS)),
    "disk error": OSError(errno.EIO, os.strerror(errno.EIO)),
    "a file in its place": NotADirectoryError(errno.ENOTDIR, "no", f"{FOLDER.path}/sweep.db"),
    "removed": FileNotFoundError(errno.ENOENT, "no", f"{FOLDER.path}/trial_00000/log.txt"),
    "rights taken": PermissionError(errno.EACCES, "no", f"{FOLDER.path}/sweep-info"),
}


@pytest.mark.parametrize("is_wrapped", [False, True], ids=["as it is", "by Tune"])
@pytest.mark.parametrize("error", UNWRITABLE.values(), ids=UNWRITABLE)
def test_a_folder_that_became_unwritable_is_told_with_how_to_resume(error, is_wrapped):
    told = rf"{FOLDER.path} cannot be written to: .*resume the sweep: tune-tf resume {FOLDER.path}"
    raised = tune.TuneError("Traceback ...") if is_wrapped else error
    raised.__cause__ = error if is_wrapped else None
    with pytest.raises(UnwritableStorageError, match=told), unwrap_tune_errors(FOLDER):
        raise raised
