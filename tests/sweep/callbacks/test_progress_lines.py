"""Progress of a sweep as a line of text."""

import pytest
from ray.tune.experiment import Trial

from tune_tf.config import SweepConfig
from tune_tf.sweep.callbacks.progress import ProgressLines


def trial(number, status, value=None, size=1):
    made = Trial("scripted", stub=True, trial_id=f"t{number}", config={"lr": number})
    made.set_status(status)
    if value is not None:
        result = {"val_loss": value, "training_iteration": 2, "size": size}
        made.run_metadata.last_result = result
    return made


@pytest.fixture
def line():
    """Return the line of some trials."""
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
    progress = ProgressLines(config, clock=lambda: 0.0)

    def line(trials):
        progress.on_step_end(trials)
        return progress._line()

    return line


def test_the_line_counts_all_trials_and_names_the_best_of_them(line):
    trials = [
        trial(0, Trial.TERMINATED, 2.0),
        trial(1, Trial.ERROR),
        trial(2, Trial.RUNNING, 1.0, size=9),  # it violates the constraint
        trial(3, Trial.PENDING),
        trial(4, Trial.PAUSED, 3.0),
    ]
    text = line(trials)
    assert text.startswith("2/9 trials, 0 s")
    assert "; 1 running, 1 pending, 1 paused, 1 completed, 1 error; best val_loss 2 by " in text
    for each in trials[2:4]:
        each.set_status(Trial.TERMINATED)
    trials[3].run_metadata.last_result = {"val_loss": 1.5, "training_iteration": 2, "size": 1}
    text = line(trials)
    assert text.startswith("4/9 trials")
    assert "; 1 paused, 3 completed, 1 error; best val_loss 1.5 by " in text
