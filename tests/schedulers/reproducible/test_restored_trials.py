"""Trials of a reproducible sweep that a resume restores."""

from types import SimpleNamespace

import pytest
from logical_trials import make_sweep
from ray.tune.experiment import Trial

from tune_tf.errors import SweepConflictError
from tune_tf.outcome import Outcome
from tune_tf.schedulers.reproducible import ReproducibleScheduler
from tune_tf.tune_internals.trial_state import to_training_result


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


@pytest.mark.parametrize("ends", [True, False])
def test_a_checkpoint_newer_than_the_last_line_tells_that_its_trial_ended(scheduler, ends):
    trial = restored(scheduler)
    reported = {"accuracy": 0.5, "size": 8.0, "done": ends}
    metrics = {"training_iteration": 1, "trial_id": "a", **reported}
    manager = trial.run_metadata.checkpoint_manager
    manager._latest_checkpoint_result = to_training_result("/nowhere", None, metrics)
    scheduler.on_trial_add(None, trial)
    (known,) = scheduler.sweep.results.values()
    assert (known["accuracy"], known.get("done", False)) == (0.5, ends)
    assert (scheduler.sweep.assignment(0).outcome is Outcome.COMPLETED) == ends
