"""A sweep read from its folder: while it runs, after its end, and after its driver was killed."""

import json

import pytest

from tune_tf.errors import UnknownSweepError, UnknownTrialError
from tune_tf.inspection import SweepState, SweepView
from tune_tf.outcome import Outcome
from tune_tf.record import recorded_results


def seen(sweep):
    return SweepView.of(sweep.folder, clock=lambda: sweep.now)


def test_a_running_sweep_tells_what_its_trials_do(sweep):
    sweep.run(0, 0.5, 0.7)
    sweep.start(1)
    sweep.report(1, 0.4, 0.6)
    sweep.start(2)
    sweep.report(2, 0.1)
    sweep.diary.record_pause("63e30f00")
    view = seen(sweep)
    assert view.state is SweepState.RUNNING
    assert view.counts == {"completed": 1, "running": 1, "paused": 1}
    (running,) = view.running
    assert (running.number, running.result.iterations) == (1, 2)
    assert running.result.metrics == {"val_accuracy": 0.6}
    assert running.node == "node-1 127.0.0.1"


def test_a_sweep_without_a_driver_and_its_trials_count_as_interrupted(sweep):
    sweep.run(0, 0.5)
    sweep.start(1)
    sweep.report(1, 0.6)
    sweep.leave()
    view = seen(sweep)
    assert view.state is SweepState.INTERRUPTED
    assert view.counts == {"completed": 1, "interrupted": 1}
    assert view.trials[1].result.outcome is None
    assert view.result.interrupted


def test_trials_that_wait_for_a_resume_to_take_them_up_are_pending(sweep):
    for number in (0, 1):
        sweep.start(number)
        sweep.report(number, 0.5)
    sweep.end(0, Outcome.INTERRUPTED)  # Ctrl-C found no time for the other
    sweep.finish(interrupted=True)
    sweep.now += 3600
    sweep.drive()
    assert seen(sweep).counts == {"pending": 2}
    sweep.start(0)
    assert seen(sweep).counts == {"running": 1, "pending": 1}
    sweep.now += 10
    assert seen(sweep).worked_s == 2 + 2 + 10  # not the hour between


def test_the_time_left_follows_from_the_trials_that_ended_and_the_budget(sweep, sweeps):
    sweep.run(0, 0.5, 0.7)
    sweep.run(1, 0.5, 0.7)
    assert seen(sweep).left_s == (8 - 2) / (2 / 8)
    short = sweeps(budget={"num_samples": 100, "time_budget_s": 60})
    short.run(0, 0.5, 0.7)
    assert seen(short).left_s == 60 - 4


def test_a_trial_whose_driver_was_killed_before_its_end_has_that_of_its_last_result(sweep):
    sweep.start(0)
    sweep.report(0, 0.5, done=Outcome.PRUNED, stop_cause="tired")
    sweep.leave()
    (trial,) = seen(sweep).trials
    assert (trial.state, trial.result.cause) == ("pruned", "tired")


def test_folders_that_no_driver_made_are_no_trials(ended):
    for name in ("trial_00009", "trial_abc", "trial_00001/checkpoint_x"):
        (ended.path / name).mkdir(parents=True)
    (ended.path / "trial_00007").write_text("a file")
    view = seen(ended)
    assert [trial.number for trial in view.trials] == [0, 1, 2, 3]
    assert not view.result.interrupted


def test_the_last_checkpoint_is_the_newest_that_holds_something(ended):
    paths = [ended.checkpoint(2, 0), ended.checkpoint(2, 1)]
    (ended.path / "trial_00002" / "checkpoint_000002").mkdir()
    paths[0].with_name("checkpoint_000003").symlink_to("gone")  # removed while it is looked at
    trial = seen(ended).trials[2]
    assert list(trial.checkpoints) == paths
    assert trial.result.checkpoint == paths[-1]


def test_checkpoints_that_were_removed_are_none(ended):
    from tune_tf.errors import CheckpointError

    ended.drive()
    ended.checkpoint(1, 0)  # a part of it may be left for a moment
    ended.diary.forget_checkpoints(["trial_00001/checkpoint_000000"])
    ended.diary.record_checkpoint_removal("a8f1e000")
    seen = SweepView.of(ended.folder)
    trial = seen.trial("1")
    assert (trial.result.checkpoint, list(trial.checkpoints)) == (None, [])
    with pytest.raises(CheckpointError, match=r"trial 1 \(a8f1e000\) was removed.*its 5 best"):
        seen.result.export_model("a.keras", trial.result)
    ended.start(1)
    assert not SweepView.of(ended.folder).trial("1").result.checkpoints_removed


def test_test_metrics_are_those_recorded_until_the_trial_runs_again(ended):
    ended.drive()
    ended.diary.record_test("a8f1e000", {"test_loss": 0.25})
    trial = SweepView.of(ended.folder).trial("a8f1e000")
    assert trial.to_dict()["test_metrics"] == {"test_loss": 0.25}
    ended.start(trial.number)
    again = SweepView.of(ended.folder).trial("a8f1e000")
    assert again.result.test_metrics == {}
    assert (again.state, again.result.outcome, again.ended_s) == ("running", None, None)


def test_a_curve_holds_the_last_value_of_an_iteration_done_again(sweep):
    sweep.start(0)
    sweep.report(0, 0.1, 0.2, float("nan"), 0.4)
    _, second, third, fourth = recorded_results(sweep.path, 0)
    sweep.diary.record_result(0, {**second, "val_accuracy": 0.25})
    assert seen(sweep).trials[0].curve("val_accuracy") == {1: 0.1, 2: 0.25}
    sweep.diary.record_result(0, third)
    sweep.diary.record_result(0, fourth)
    assert seen(sweep).trials[0].curve("val_accuracy") == {1: 0.1, 2: 0.25, 4: 0.4}


@pytest.mark.parametrize("name", ["63e30f00", "2", "trial_00002"])
def test_a_trial_is_found_by_its_number_id_or_folder(ended, name):
    assert seen(ended).trial(name).number == 2


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("63e30f0x", "did you mean '63e30f00'"),
        ("9", "has no trial '9'; there are 4, numbered from 0"),
        ("", "has no trial ''"),
    ],
)
def test_an_unknown_trial_is_refused_with_those_there_are(ended, name, expected):
    with pytest.raises(UnknownTrialError, match=expected):
        seen(ended).trial(name)


def test_an_unknown_sweep_is_refused_with_a_near_one(ended, tmp_path):
    with pytest.raises(UnknownSweepError, match=r"'smal'; did you mean 'small'.*those in"):
        SweepView.open("smal", ended.path.parent)
    (tmp_path / "photos").mkdir()
    with pytest.raises(UnknownSweepError, match="photos is a folder, but not of a sweep"):
        SweepView.open(tmp_path / "photos", ended.path.parent)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"settings": "x"}'])
def test_a_damaged_folder_is_refused(ended, text):
    (ended.path / "sweep-info").write_text(text)
    with pytest.raises(UnknownSweepError, match="sweep-info is damaged"):
        SweepView.open(ended.path)


def test_a_result_and_a_sweep_are_plain_data(sweep):
    sweep.run(1, 0.5, 0.75)
    sweep.start(0)
    sweep.report(0, float("nan"))
    data = seen(sweep).to_dict()
    assert json.loads(json.dumps(data)) == data | {"best": {**data["best"]}}
    assert (data["state"], data["trials"]) == ("running", {"completed": 1, "running": 1})
    assert (data["best"]["number"], data["best_value"], data["pareto_front"]) == (1, 0.75, [1])
    assert [trial["outcome"] for trial in data["running"]] == ["running"]
