import contextlib
import json
import shutil
import sqlite3

import pytest
from sweep_in_progress import IDS, SweepInProgress
from tune_files import TuneFiles, write_checkpoint

from tune_tf.errors import SweepConflictError
from tune_tf.outcome import Outcome
from tune_tf.sweep.state.experiment_state import TuneState
from tune_tf.sweep.state.recovery import recover
from tune_tf.sweep.state.snapshots import snapshot_paths


@pytest.fixture
def sweep(tmp_path):
    """A sweep that was killed: trial 0 has ended, 1 has two checkpoints, 2 began after Tune saved.

    Trial 1 has ended, too, after Tune had written its state for the last time, if a test says so.
    """
    sweep = SweepInProgress(tmp_path / "sweeps")
    sweep.tune = tune = TuneFiles(sweep)
    tune.trial(0, IDS[0], sweep.config_of(0))
    tune.save()  # the first state is of the very beginning
    sweep.run(0, 0.5, 0.7, 0.8)
    tune.checkpoint(0, 3)
    tune.report(0, 3)
    tune.end(0)
    tune.trial(1, IDS[1], sweep.config_of(1))
    sweep.start(1)
    sweep.report(1, 0.1, 0.2, 0.3)
    tune.checkpoint(1, 2)
    tune.checkpoint(1, 3)
    tune.report(1, 3)
    tune.save()
    yield sweep
    if sweep.is_driven:
        sweep.leave()


def recovered(sweep):
    found = recover(sweep.path, sweep.folder.config)
    state = TuneState(found.files)
    return found, {trial.number: trial for trial in state.trials}


def where(trial):
    return [saved.iteration for saved in trial.checkpoints]


def test_a_sweep_that_never_began_has_nothing_to_go_on_from(tmp_path):
    sweep = SweepInProgress(tmp_path / "sweeps")
    sweep.leave()
    assert not recover(sweep.path, sweep.folder.config).resumes


def test_a_trial_that_ended_after_tune_wrote_its_state_is_not_run_again(sweep):
    sweep.report(1, 0.4, done=Outcome.PRUNED)
    sweep.end(1, Outcome.PRUNED)
    write_checkpoint(sweep.path, 1, 4)
    found, trials = recovered(sweep)
    assert found.ended == {IDS[0]: Outcome.COMPLETED, IDS[1]: Outcome.PRUNED}
    assert trials[1].status == "TERMINATED"
    assert trials[1].last_result["training_iteration"] == 4
    assert trials[1].last_result["stop_reason"] == "pruned"
    assert where(trials[1])[0] == 4
    assert found.losses == ()


def test_trials_are_restarted_as_often_as_the_resume_is_told(sweep):
    config = sweep.folder.config.model_copy(update={"max_failures": 5})
    trials = TuneState(recover(sweep.path, config).files).trials
    assert {json.loads(trial.texts()[0])["max_failures"] for trial in trials} == {5}


def test_trials_that_tune_has_not_saved_are_those_of_the_record(sweep):
    for number, iteration in ((2, 2), (3, 1)):  # the checkpoint of 3's end was still to be written
        sweep.start(number)
        sweep.report(number, 0.4, 0.5, done=Outcome.PRUNED)
        write_checkpoint(sweep.path, number, iteration)
    found, trials = recovered(sweep)
    assert trials[2].status == "TERMINATED"
    assert found.ended == {IDS[0]: Outcome.COMPLETED, IDS[2]: Outcome.PRUNED}
    assert not trials[3].has_ended
    assert where(trials[3]) == [1]


def test_results_that_the_record_lacks_are_told(sweep):
    with contextlib.closing(sqlite3.connect(sweep.path / "sweep.db", isolation_level=None)) as lost:
        lost.execute("DELETE FROM result WHERE trial = 1 AND number > 2")
    found, _ = recovered(sweep)
    (told,) = found.losses
    assert told.startswith("sweep.db lacks results of trial 1: it ends at iteration 2")


def test_results_that_are_reported_again_after_a_resume_are_not_missing(sweep):
    sweep.diary.record_result(1, {"val_accuracy": 0.1, "training_iteration": 1})
    found, _ = recovered(sweep)
    assert found.losses == ()


def test_a_sweep_without_its_record_is_not_resumed(sweep):
    sweep.leave()
    for path in sweep.path.glob("sweep.db*"):
        path.unlink()
    with pytest.raises(SweepConflictError, match=r"its record, sweep\.db, is missing or empty"):
        recovered(sweep)


def test_of_a_damaged_state_the_one_before_it_and_the_record_are_used(sweep):
    cut(snapshot_paths(sweep.path)[0], 700)
    found, trials = recovered(sweep)
    assert trials[0].has_ended
    assert found.snapshot == snapshot_paths(sweep.path)[1]
    assert where(trials[1]) == [3]
    assert "the previous state" in found.losses[0]


def test_without_any_whole_state_it_is_told_what_is_lost_and_what_to_do(sweep):
    shutil.rmtree(sweep.path / "snapshots")
    cut(next(sweep.path.glob("experiment_state-*")), 500)
    with pytest.raises(SweepConflictError, match=r"2 trials, 1 of them ended.*warm_start_from"):
        recovered(sweep)


def test_a_damaged_checkpoint_gives_way_to_the_one_before_it(sweep):
    cut(sweep.path / "trial_00001" / "checkpoint_000002" / "trial.npz", 900)
    found, trials = recovered(sweep)
    assert where(trials[1]) == [2]
    (told,) = found.losses
    assert "resumes from trial_00001/checkpoint_000001, iteration 2" in told


def test_without_a_whole_checkpoint_a_trial_begins_again_and_says_so(sweep):
    for folder in (sweep.path / "trial_00001").glob("checkpoint_*"):
        cut(folder / "trial.npz", 10)
    found, trials = recovered(sweep)
    assert where(trials[1]) == []
    assert "starts over" in found.losses[0]


def test_a_damaged_checkpoint_of_a_trial_that_has_ended_is_told(sweep):
    cut(sweep.path / "trial_00000" / "checkpoint_000002" / "trial.npz", 100)
    found, _ = recovered(sweep)
    assert "cannot be exported" in found.losses[0]


def cut(path, size):
    path.write_bytes(path.read_bytes()[:size])
