"""Progress of a sweep as a line of text."""

import pytest
from ray.tune.experiment import Trial

from tune_tf.config import SweepConfig
from tune_tf.sweep.callbacks.progress import ProgressLines


class ProgressTrial:
    """What the progress reads of a trial; counts how often."""

    def __init__(self, number, status, value=None, **result):
        self.trial_id, self.status, self.config = f"t{number}", status, {"lr": number}
        last = {"val_loss": value, "training_iteration": 2, **result} if value is not None else {}
        self._metadata, self.num_reads = type("Metadata", (), {"last_result": last}), 0

    @property
    def run_metadata(self):
        self.num_reads += 1
        return self._metadata

    def is_finished(self):
        return self.status in (Trial.TERMINATED, Trial.ERROR)

    def __str__(self):
        return self.trial_id


@pytest.fixture
def progress():
    config = SweepConfig.from_dict(
        {
            "name": "sweep",
            "workload": "tune_tf.workloads.digits:DigitsMLP",
            "objective": {"metric": "val_loss", "mode": "min"},
            "constraints": {"size": "<= 5"},
            "space": {"lr": {"uniform": [0, 9]}},
            "budget": {"num_samples": 9},
        }
    )
    return ProgressLines(config, clock=lambda: 0.0)


def line(progress, trials):
    progress.on_step_end(trials)
    return progress._line()


def test_the_line_counts_all_trials_and_names_the_best_of_them(progress):
    trials = [
        ProgressTrial(0, Trial.TERMINATED, 2.0, size=1),
        ProgressTrial(1, Trial.ERROR),
        ProgressTrial(2, Trial.RUNNING, 1.0, size=9),
        ProgressTrial(3, Trial.PENDING),
    ]
    text = line(progress, trials)
    assert text.startswith("2/9 trials, 0 s")
    assert text.endswith("; 1 running, 1 pending, 1 completed, 1 error; best val_loss 2 by t0")
    trials[2].status = Trial.TERMINATED  # it violates the constraint
    trials[3].status, trials[3]._metadata.last_result = (
        Trial.TERMINATED,
        {
            "val_loss": 1.5,
            "training_iteration": 2,
            "size": 1,
        },
    )
    text = line(progress, trials)
    assert text.startswith("4/9 trials")
    assert text.endswith("; 3 completed, 1 error; best val_loss 1.5 by t3")
