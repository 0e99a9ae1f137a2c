"""Reproducible sweeps compared: in logical time, with results that a function gives."""

import numpy as np
import pytest
from ray.tune.experiment import Trial

from tune_tf import Objective
from tune_tf.config import SweepConfig
from tune_tf.errors import InvalidSettingsError
from tune_tf.schedulers.logical_sweep import Position
from tune_tf.searchers import OptunaSearcher
from tune_tf.space import Float, SearchSpace
from tune_tf.sweep.plan import check_settings
from tune_tf.sweep.reproducibility import make_reproducible_scheduler
from tune_tf.sweep.verify import first_difference, verify_sweep
from tune_tf.sweep_folder import SweepFolder

SETTINGS = {
    "name": "small",
    "workload": "models:Mine",
    "objective": {"metric": "val_accuracy", "mode": "max"},
    "space": {"rate": {"uniform": [0.0, 1.0]}},
    "scheduler": {"name": "asha", "max_t": 4, "grace_period": 1, "reduction_factor": 2},
    "budget": {"num_samples": 4},
    "seed": 7,
    "reproducible": True,
    "max_concurrent_trials": 2,
}


@pytest.fixture
def scheduler_of(tmp_path):
    """Make the scheduler of a sweep in a folder of its own, or in that of another one."""

    def make(folder=None, **changes):
        if folder is None:
            settings = {**SETTINGS, "storage_path": str(tmp_path), **changes}
            folder = SweepFolder.create(SweepConfig.from_dict(settings), tmp_path)
        return make_reproducible_scheduler(folder, 1), folder

    return make


def trained(sweep, changed=None, num_rounds=20):
    """Train all trials as far as they may, in rounds; ``changed`` maps positions to metrics."""
    for _ in range(num_rounds):
        for number in range(sweep.num_created):
            for iteration in range(1, sweep.assignment(number).limit + 1):
                place = Position(number, 0, iteration)
                value = sweep.config(number)["rate"] * iteration
                metrics = {"loss": 1.0, "val_accuracy": value}
                sweep.report(place, {**metrics, **(changed or {}).get(place, {})})
        sweep.advance()
    return sweep


@pytest.mark.parametrize("sampler", ["tpe", "cmaes"])
def test_a_resume_learns_from_the_earlier_results_that_were_there_at_the_start(
    scheduler_of, tmp_path, sampler
):
    space = SearchSpace({"rate": Float(0, 1)})
    source = tmp_path / "source.journal"
    earlier = OptunaSearcher(
        space, Objective("val_accuracy", "max"), storage=str(source), study_name="source"
    )
    for rate in np.linspace(0.1, 0.4, 12):
        earlier.add_evaluated_point({"rate": rate}, value=1 - rate)

    def configs(scheduler):
        return [trained(scheduler.sweep).config(number) for number in range(4)]

    warm = {"sampler": sampler, "warm_start_from": str(source)}
    first, folder = scheduler_of(searcher=warm)
    assert configs(first) != configs(scheduler_of(searcher={"sampler": sampler})[0])
    for rate in np.linspace(0.6, 0.9, 12):
        earlier.add_evaluated_point({"rate": rate}, value=1 + rate)
    assert configs(scheduler_of(folder)[0]) == configs(first)
    assert configs(scheduler_of(searcher=warm)[0]) != configs(first)
    source.unlink()
    assert configs(scheduler_of(folder)[0]) == configs(first)
    config = folder.config.model_copy(update={"workload": "tune_tf.workloads.digits:DigitsMLP"})
    check_settings(config, tmp_path, folder.path)
    with pytest.raises(InvalidSettingsError, match="there is no such file"):
        check_settings(config, tmp_path)


def difference(one, other, *, is_whole=True):
    return first_difference(one, other, "val_accuracy", is_whole=is_whole)


def test_two_runs_of_equal_sweeps_have_no_difference_and_one_fingerprint(scheduler_of):
    one, other = (trained(scheduler_of()[0].sweep) for _ in range(2))
    assert difference(one, other) is None
    assert one.fingerprint == other.fingerprint
    assert len(one.events) > 8


def test_the_first_value_that_differs_is_named_that_of_the_objective_first(scheduler_of):
    place = Position(1, 0, 1)
    one = trained(scheduler_of()[0].sweep, {place: {"val_accuracy": 0.25}})
    other = trained(scheduler_of()[0].sweep, {place: {"val_accuracy": 0.5, "loss": 2.0}})
    found = difference(one, other)
    assert found == "at event 4: trial 1, iteration 1: val_accuracy 0.25 and 0.5, loss 1.0 and 2.0"


def test_another_seed_differs_in_the_first_config(scheduler_of):
    one, other = scheduler_of()[0].sweep, scheduler_of(seed=8)[0].sweep
    assert difference(one, other).startswith("at event 1: config of trial 0: rate 0.")


def test_a_failure_differs_from_a_result(scheduler_of):
    one, other = scheduler_of()[0].sweep, trained(scheduler_of()[0].sweep)
    one.report(Position(0, 0, 1), {})
    assert difference(trained(one), other) == (
        "at event 3: failure of trial 0 and trial 0, iteration 1"
    )


def test_an_interrupted_sweep_is_compared_as_far_as_it_goes(scheduler_of):
    one, other = trained(scheduler_of()[0].sweep, num_rounds=1), trained(scheduler_of()[0].sweep)
    assert 0 < len(one.events) < len(other.events)
    assert difference(one, other, is_whole=False) is None
    number = len(one.events) + 1
    assert difference(one, other).startswith(f"at event {number}: the end and ")


def test_a_sweep_that_is_not_reproducible_is_refused_with_the_line_to_write(scheduler_of):
    folder = SweepFolder.create(
        SweepConfig.from_dict({**SETTINGS, "reproducible": False}), scheduler_of()[1].path
    )
    with pytest.raises(InvalidSettingsError, match="write `reproducible: true` into its sweep"):
        verify_sweep(folder.path)


def reasons(scheduler_of, folder):
    """Return the reasons that the file in a folder holds."""
    return scheduler_of(folder)[0].fingerprint.reasons


def test_another_environment_at_a_resume_makes_a_sweep_incomparable(scheduler_of):
    first, folder = scheduler_of()
    first.begin_session({"keras": "3.15", "slots": "2"})
    assert reasons(scheduler_of, folder) == ()
    scheduler_of(folder)[0].begin_session({"keras": "3.15", "slots": "2"})
    assert reasons(scheduler_of, folder) == ()
    scheduler_of(folder)[0].begin_session({"keras": "3.16", "slots": "2"})
    assert reasons(scheduler_of, folder) == (
        "it was resumed with another environment: keras 3.15 and 3.16",
    )
    found = scheduler_of(folder)[0].fingerprint
    assert found.environment == {"keras": "3.16", "slots": "2"}
    assert str(found).startswith(f"{found.digest}, not comparable: it was resumed")


class _Trial(Trial):
    local_experiment_path = local_dir = "."


def running_trial(scheduler):
    trial = _Trial("trainable", stub=True, trial_id="a", config={}, experiment_tag="1")
    scheduler.on_trial_add(None, trial)
    trial.set_status(Trial.RUNNING)
    return trial


def test_a_trial_that_is_stopped_by_hand_makes_a_sweep_incomparable(scheduler_of):
    scheduler, folder = scheduler_of()
    result = {"training_iteration": 1, "val_accuracy": 0.5, "done": True}
    stop = {"stop_reason": "pruned", "stop_cause": "stopped by hand"}
    trial = running_trial(scheduler)
    trial.update_last_result(result | stop)
    scheduler.on_trial_complete(None, trial, result | stop)
    assert reasons(scheduler_of, folder) == ("trial 0 was stopped by hand",)


def test_a_repeated_iteration_with_another_result_makes_a_sweep_incomparable(scheduler_of, caplog):
    scheduler, folder = scheduler_of()
    trial = running_trial(scheduler)
    for value in (0.5, 0.5):
        scheduler.on_trial_result(None, trial, {"training_iteration": 1, "val_accuracy": value})
    assert reasons(scheduler_of, folder) == ()
    scheduler.on_trial_result(None, trial, {"training_iteration": 1, "val_accuracy": 0.6})
    assert "trial 0 is not reproducible" in caplog.text
    assert reasons(scheduler_of, folder) == ("trial 0 gave other results when it was repeated",)
