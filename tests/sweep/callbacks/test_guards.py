"""What is told of a workload that its sweep's first trials refuse."""

import pytest

from tune_tf.errors import WorkloadError
from tune_tf.sweep.callbacks import guards
from tune_tf.sweep.callbacks.guards import BrokenWorkloadCheck

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
    trial = Trial()

    with pytest.raises(WorkloadError, match=r"^record 3 \(a.png\): cannot be read;\n  mend it$"):
        BrokenWorkloadCheck().on_trial_error(iteration=1, trials=[trial], trial=trial)


def test_another_error_ends_no_sweep(error_of):
    error_of("Traceback (most recent call last):\nValueError: something else")
    trial = Trial()

    BrokenWorkloadCheck().on_trial_error(iteration=1, trials=[trial], trial=trial)
    assert trial.last_result is None
