import json
import shutil

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


def test_a_whole_sweep_goes_on_from_what_tune_wrote_last(sweep):
    found, trials = recovered(sweep)
    assert found.losses == ()
    assert found.resumes
    assert trials[0].has_ended
    assert not trials[1].has_ended
    assert where(trials[1]) == [3, 2]
    assert found.ended == {IDS[0]: Outcome.COMPLETED}


def test_a_sweep_that_never_began_has_nothing_to_go_on_from(tmp_path):
    sweep = SweepInProgress(tmp_path / "sweeps")
    sweep.leave()
    assert not recover(sweep.path, sweep.folder.config).resumes


def test_a_sweep_killed_while_tune_wrote_its_first_state_begins_anew(tmp_path):
    sweep = SweepInProgress(tmp_path / "sweeps")
    sweep.leave()
    (sweep.path / "experiment_state-2026-11-01_10-00-00.json").write_text("{")
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


def test_a_trial_that_failed_after_tune_wrote_its_state_is_not_run_again(sweep):
    sweep.end(1, Outcome.OOM, "too large")
    found, trials = recovered(sweep)
    assert trials[1].status == "ERROR"
    assert found.ended == {IDS[0]: Outcome.COMPLETED, IDS[1]: Outcome.OOM}


def test_how_a_trial_ended_is_told_however_often_it_is_asked(sweep):
    """Tune's state is written with the ends before anybody has heard of them."""
    sweep.report(1, 0.4, done=Outcome.PRUNED)
    sweep.end(1, Outcome.PRUNED)
    write_checkpoint(sweep.path, 1, 4)
    first, _ = recovered(sweep)
    sweep.tune.snapshots.put(first.files)
    sweep.tune.snapshots.close()
    sweep.leave()
    sweep.drive()
    again, _ = recovered(sweep)
    assert again.ended == first.ended == {IDS[0]: Outcome.COMPLETED, IDS[1]: Outcome.PRUNED}


ENDS = {
    "its result tells": ("TERMINATED", {"stop_reason": "diverged", "done": True}, "diverged"),
    "it reached its limit": ("TERMINATED", {"done": True}, "completed"),
    "tune stopped it without a word": ("TERMINATED", {}, "out_of_budget"),
    "it failed": ("ERROR", {}, "error"),
    "it was interrupted before": ("TERMINATED", {"stop_reason": "interrupted"}, "out_of_budget"),
}


@pytest.mark.parametrize(("status", "last", "outcome"), ENDS.values(), ids=ENDS.keys())
def test_an_end_that_the_diary_has_lost_is_what_tune_knows_of_it(sweep, status, last, outcome):
    sweep.tune.trials[1].run_metadata.last_result |= last
    sweep.tune.trials[1].set_status(status)
    sweep.tune.save()
    found, _ = recovered(sweep)
    assert found.ended[IDS[1]] is Outcome(outcome)


def test_a_trial_that_tune_had_not_written_yet_keeps_its_id_and_number(sweep):
    sweep.start(2)
    found, trials = recovered(sweep)
    assert trials[2].trial_id == IDS[2]
    assert found.trial_ids == set(IDS[:3])
    assert not trials[2].has_ended
    assert trials[2].folder_name == "trial_00002"
    assert where(trials[2]) == []


def test_a_trial_that_a_later_one_overtook_at_its_start_is_not_lost(sweep):
    sweep.diary.record_creation(IDS[2], 2, sweep.config_of(2))
    sweep.start(3)
    found, trials = recovered(sweep)
    assert {number: trials[number].trial_id for number in (2, 3)} == {2: IDS[2], 3: IDS[3]}
    assert not trials[2].has_ended
    assert found.begun == {IDS[0], IDS[1], IDS[3]}


def test_a_trial_missing_in_tunes_state_restarts_from_its_checkpoint(sweep):
    sweep.start(2)
    sweep.report(2, 0.1, 0.2)
    write_checkpoint(sweep.path, 2, 2)
    _, trials = recovered(sweep)
    assert where(trials[2]) == [2]


def test_a_trial_that_ended_before_tune_had_written_it_is_not_run(sweep):
    sweep.run(2, 0.3, 0.9)
    found, trials = recovered(sweep)
    assert trials[2].status == "TERMINATED"
    assert trials[2].last_result["val_accuracy"] == 0.9
    assert found.ended == {IDS[0]: Outcome.COMPLETED, IDS[2]: Outcome.COMPLETED}


def test_trials_missing_in_the_event_log_are_found_by_their_folders(sweep):
    known = (sweep.path / "events.jsonl").read_bytes()
    sweep.run(2, 0.3, 0.9)
    write_checkpoint(sweep.path, 2, 2)
    sweep.run(3, 0.4, 0.5)
    write_checkpoint(sweep.path, 3, 1)  # that of its end was still to be written
    (sweep.path / "events.jsonl").write_bytes(known)
    found, trials = recovered(sweep)
    assert trials[2].status == "TERMINATED"
    assert found.ended == {IDS[0]: Outcome.COMPLETED, IDS[2]: Outcome.COMPLETED}
    assert not trials[3].has_ended
    assert where(trials[3]) == [1]
    assert [told for told in found.losses if "trial 2 is known only from its folder" in told]


def test_a_trial_of_the_same_number_is_not_taken_up_twice(sweep):
    sweep.diary.record_start("before", 1, sweep.config_of(1))
    found, _ = recovered(sweep)
    assert "before" not in found.trial_ids


def test_of_a_damaged_state_the_one_before_it_and_the_diary_are_used(sweep):
    cut(snapshot_paths(sweep.path)[0], 700)
    found, trials = recovered(sweep)
    assert trials[0].has_ended
    assert found.snapshot == snapshot_paths(sweep.path)[1]
    assert where(trials[1]) == [3]
    assert "the previous state" in found.losses[0]


def test_without_an_archive_tunes_own_files_are_used(sweep):
    shutil.rmtree(sweep.path / "snapshots")
    found, trials = recovered(sweep)
    assert found.snapshot is None
    assert where(trials[1]) == [3, 2]


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


def test_a_byte_that_is_wrong_in_a_checkpoint_is_found(sweep):
    path = sweep.path / "trial_00001" / "checkpoint_000002" / "trial.npz"
    content = bytearray(path.read_bytes())
    content[1500] ^= 0xFF
    path.write_bytes(content)
    _, trials = recovered(sweep)
    assert where(trials[1]) == [2]


def test_without_a_whole_checkpoint_a_trial_begins_again_and_says_so(sweep):
    for folder in (sweep.path / "trial_00001").glob("checkpoint_*"):
        cut(folder / "trial.npz", 10)
    found, trials = recovered(sweep)
    assert where(trials[1]) == []
    assert "starts over" in found.losses[0]


def test_a_checkpoint_before_the_newest_that_is_gone_is_forgotten(sweep):
    shutil.rmtree(sweep.path / "trial_00001" / "checkpoint_000001")
    found, trials = recovered(sweep)
    assert where(trials[1]) == [3]
    assert found.losses == ()


def test_checkpoints_that_are_made_once_more_are_removed(sweep):
    stray = write_checkpoint(sweep.path, 1, 4)
    found, _ = recovered(sweep)
    assert found.unneeded == (str(stray),)
    found.write()
    assert not stray.exists()


def test_a_damaged_checkpoint_of_a_trial_that_has_ended_is_told(sweep):
    cut(sweep.path / "trial_00000" / "checkpoint_000002" / "trial.npz", 100)
    found, _ = recovered(sweep)
    assert "cannot be exported" in found.losses[0]


@pytest.mark.parametrize(("before", "model"), [(True, "that of iteration 4"), (False, "lost")])
def test_a_damaged_checkpoint_of_an_end_that_tune_has_not_saved_is_told(sweep, before, model):
    sweep.start(2)
    sweep.report(2, 0.1, 0.2, 0.3, 0.4)
    if before:
        write_checkpoint(sweep.path, 2, 4)
    sweep.report(2, 0.5, done=Outcome.PRUNED)
    path = write_checkpoint(sweep.path, 2, 5)
    sweep.end(2, Outcome.PRUNED)
    (path / "trial.npz").write_bytes((path / "trial.npz").read_bytes()[:200])
    found, trials = recovered(sweep)
    assert where(trials[2]) == [4] * before
    (told,) = found.losses
    assert path.name in told
    assert told.endswith(f"is damaged: its model is {model}")


def test_results_that_are_lost_are_told(sweep):
    path = sweep.path / "trial_00000" / "result.json"
    cut(path, len(path.read_bytes()) - 5)
    found, _ = recovered(sweep)
    assert "ends at iteration 2, but the trial had reached 3" in found.losses[0]


def test_only_one_state_is_left_where_tune_looks_for_it(sweep):
    later = sweep.path / "experiment_state-2030-01-01_00-00-00.json"
    later.write_text("{")
    found, _ = recovered(sweep)
    found.write()
    assert not later.exists()
    for name, content in found.files.items():
        assert (sweep.path / name).read_bytes() == content


def test_another_number_of_failures_is_taken_up(sweep):
    changed = sweep.folder.config.model_copy(update={"max_failures": 20})
    files = recover(sweep.path, changed).files
    whole = json.loads(next(v for k, v in files.items() if k.startswith("experiment_state")))
    assert {json.loads(state)["max_failures"] for state, _ in whole["trial_data"]} == {20}


def cut(path, size):
    path.write_bytes(path.read_bytes()[:size])
