"""Two runs of a reproducible sweep compared by what their folders say."""

import math

import pytest

from tune_tf.config import SweepConfig
from tune_tf.errors import InvalidSettingsError
from tune_tf.sweep.verify import ComparedTrial, first_difference, verify_sweep
from tune_tf.sweep_folder import SweepFolder


def run_of(changes=None, *, num_trials=3, num_results=2, outcome="completed", **config):
    """Return the trials of a run; ``changes`` has other metrics by trial and iteration."""
    return {
        number: ComparedTrial(
            {"rate": 0.1 * number, **config},
            {
                iteration: {
                    "loss": 1.0,
                    "accuracy": 0.5,
                    **(changes or {}).get((number, iteration), {}),
                }
                for iteration in range(1, num_results + 1)
            },
            outcome,
        )
        for number in range(num_trials)
    }


ONE = run_of({(2, 2): {"loss": math.nan}})
CASES = {
    "nothing": (run_of({(2, 2): {"loss": math.nan}}), None),
    "a metric": (
        run_of({(1, 2): {"accuracy": 0.6, "loss": 2.0}, (2, 1): {"accuracy": 0.7}}),
        "in trial 1, iteration 2: accuracy 0.5 and 0.6",
    ),
    "a metric that was not reported": (
        run_of({(0, 1): {"size": 3}}),
        "in trial 0, iteration 1: size None and 3",
    ),
    "a config": (run_of(width=8), "in the config of trial 0: width unknown and 8"),
    "an end": (
        run_of({(2, 2): {"loss": math.nan}}, num_results=3),
        "in the end of trial 0: completed after 2 and completed after 3 iterations",
    ),
    "an outcome": (
        run_of({(2, 2): {"loss": math.nan}}, outcome="error"),
        "in the end of trial 0: completed after 2 and error after 2 iterations",
    ),
    "trials": (
        run_of({(2, 2): {"loss": math.nan}}, num_trials=4),
        "in the number of trials: 3 and 4",
    ),
}


@pytest.mark.parametrize(("other", "found"), CASES.values(), ids=CASES)
def test_the_first_difference_is_named_with_both_values(other, found):
    assert first_difference(ONE, other, "accuracy", is_whole=True) == found


def test_an_interrupted_sweep_is_compared_as_far_as_it_goes():
    one, other = run_of(num_results=1, outcome=None), run_of(num_trials=4)
    assert first_difference(one, other, "accuracy", is_whole=False) is None


def test_a_sweep_that_is_not_reproducible_is_refused_with_the_line_to_write(tmp_path):
    settings = {
        "name": "small",
        "workload": "models:Mine",
        "objective": {"metric": "val_accuracy", "mode": "max"},
        "space": {"rate": {"uniform": [0.0, 1.0]}},
        "budget": {"num_samples": 4},
        "storage_path": str(tmp_path),
    }
    folder = SweepFolder.create(SweepConfig.from_dict(settings), tmp_path)
    with pytest.raises(InvalidSettingsError, match="write `reproducible: true` into its sweep"):
        verify_sweep(folder.path)
