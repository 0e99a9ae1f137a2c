"""A resume whose proposals are not those of before."""

from types import SimpleNamespace

import pytest
from logical_trials import make_sweep
from ray.tune.experiment import Trial

from tune_tf.errors import SweepConflictError
from tune_tf.schedulers.reproducible import ReproducibleScheduler


@pytest.fixture
def scheduler(tmp_path):
    sweep = make_sweep({"name": "fifo"}, "random")
    return ReproducibleScheduler(sweep, num_workers=1, file=tmp_path / "results.jsonl")


def restored(scheduler, **changes):
    """Return the first trial as Tune restores it."""
    config = {**scheduler.propose(None), **changes}
    return Trial("scripted", stub=True, trial_id="a", experiment_tag="1_", config=config)


def test_a_restored_trial_with_other_parameters_is_refused(scheduler):
    scheduler.on_trial_add(None, restored(scheduler, width=999))
    controller = SimpleNamespace(get_live_trials=list)
    with pytest.raises(SweepConflictError, match=r"trial 0 has other parameters.* width 999 and"):
        scheduler.choose_trial_to_run(controller)


def test_a_restored_trial_goes_on(scheduler):
    trial = restored(scheduler)
    scheduler.on_trial_add(None, trial)
    assert scheduler.choose_trial_to_run(SimpleNamespace(get_live_trials=lambda: [trial])) is trial
