"""What a resume finds in the record and the storage, and which trials of Tune's it makes."""

import logging
import shutil

import pytest
from ray.tune import Checkpoint, CheckpointConfig
from ray.tune.experiment import Trial

from tune_tf.errors import SweepConflictError
from tune_tf.outcome import Outcome
from tune_tf.record import SweepHistory
from tune_tf.space import Choice, SearchSpace
from tune_tf.sweep.resume import Resume, own_values


@pytest.fixture
def spec(sweep):
    """Tune's specification of an experiment in the sweep's folder."""
    from ray.train._internal.storage import StorageContext
    from ray.tune.registry import register_trainable

    register_trainable("of_a_resume", lambda config: None)
    return {
        "run": "of_a_resume",
        "config": {"given": 1},
        "storage": StorageContext(str(sweep.path.parent), sweep.path.name),
        "checkpoint_config": CheckpointConfig(),
        "max_failures": 1,
        "log_to_file": (None, None),
        "stop": {"training_iteration": 9},
    }


def resume_of(sweep):
    """Leave a sweep, if it runs, and read what a resume finds."""
    if sweep.is_driven:
        sweep.leave()
    return Resume.read(sweep.path, sweep.folder.config)


def made(sweep, spec):
    return resume_of(sweep).make_trials(spec, sweep.folder.config.space)


def damage(path):
    (path / "trial.npz").write_bytes(b"PK")


def saved(sweep, number, count):
    """Run a trial for so many epochs, and save a checkpoint after each."""
    sweep.start(number)
    paths = []
    for place in range(count):
        sweep.report(number, 0.1 * place)
        paths.append(sweep.checkpoint(number, place))
    return paths


def test_a_trial_goes_on_with_all_that_it_was(sweep, spec):
    saved(sweep, 1, 2)
    sweep.diary.record_progress("a8f1e000", tag="2_momentum=0.9", failures=1)
    (trial,) = made(sweep, spec)
    assert (trial.trial_id, trial.experiment_tag) == ("a8f1e000", "2_momentum=0.9")
    assert trial.config == {"given": 1, **sweep.config_of(1)}
    assert trial.evaluated_params == {"optimizer": "sgd", "momentum": 0.9, "block/width": 9}
    assert (trial.num_failures, trial.max_failures) == (1, 1)
    assert trial.stopping_criterion == {"training_iteration": 9}
    assert trial.status == Trial.PENDING
    assert trial.checkpoint.path == str(sweep.path / "trial_00001" / "checkpoint_000001")
    assert trial.last_result["training_iteration"] == 2
    assert trial.last_result["config"] == trial.config
    assert trial.path == str(sweep.path / "trial_00001")


def test_only_those_that_have_not_ended_for_good_go_on_and_paused_ones_are_paused(sweep, spec):
    sweep.run(0, 0.5)
    saved(sweep, 1, 1)
    sweep.end(1, Outcome.INTERRUPTED)
    saved(sweep, 2, 1)
    sweep.diary.record_pause("63e30f00")
    sweep.create(3)
    sweep.leave()
    sweep.drive()
    trials = made(sweep, spec)
    assert [trial.trial_id[:2] for trial in trials] == ["a8", "63", "5d"]
    assert [trial.status for trial in trials] == ["PENDING", "PAUSED", "PENDING"]
    assert trials[-1].checkpoint is None
    assert not trials[-1].run_metadata.last_result


@pytest.mark.parametrize("lose", [damage, shutil.rmtree], ids=["damaged", "missing"])
def test_of_a_lost_newest_checkpoint_the_one_before_is_taken(sweep, spec, lose, caplog):
    older, newest = saved(sweep, 1, 2)
    lose(newest)
    resume = resume_of(sweep)
    (each,) = resume.trials
    assert (each.checkpoint, each.saved) == ("trial_00001/checkpoint_000000", 2)
    assert each.result["training_iteration"] == 1
    assert resume.unneeded[0] == "trial_00001/checkpoint_000001"
    (trial,) = resume.make_trials(spec, sweep.folder.config.space)
    assert trial.checkpoint.path == str(older)
    assert trial.last_result["training_iteration"] == 1
    assert "starts over" not in resume.losses[0]
    assert "resumes from trial_00001/checkpoint_000000, iteration 1" in resume.losses[0]


def test_a_trial_without_an_intact_checkpoint_starts_over(sweep, spec):
    for path in saved(sweep, 1, 2):
        damage(path)
    resume = resume_of(sweep)
    (each,) = resume.trials
    assert (each.checkpoint, each.saved, len(each.damaged)) == (None, 2, 2)
    (trial,) = resume.make_trials(spec, sweep.folder.config.space)
    assert trial.checkpoint is None
    assert "starts over" in resume.losses[0]


def test_what_no_trial_goes_on_from_is_removed_from_disk_and_record(sweep, caplog):
    older, damaged = saved(sweep, 1, 2)
    damage(damaged)
    unknown = sweep.path / "trial_00001" / "checkpoint_000007"
    unknown.mkdir()
    file = sweep.path / "trial_00001" / "checkpoint_000008"
    file.write_text("no checkpoint")
    other = sweep.path / "trial_00001" / "checkpoint_x"
    other.mkdir()
    resume = resume_of(sweep)
    assert unknown.exists()
    sweep.drive()
    with caplog.at_level(logging.WARNING):
        resume.clean_up(sweep.diary)
    assert [path.exists() for path in (older, damaged, unknown, file, other)] == [
        *(True, False, False, True, True)
    ]
    (trial,) = SweepHistory.read(sweep.path).trials.values()
    assert trial.checkpoints == ("trial_00001/checkpoint_000000",)
    assert "is damaged or missing" in caplog.text


def test_the_next_checkpoint_has_the_next_number_though_others_were_removed(sweep, spec):
    paths = saved(sweep, 1, 3)
    shutil.rmtree(paths[0])
    (sweep.path / "trial_00001" / "checkpoint_000008").write_text("no checkpoint")
    (trial,) = made(sweep, spec)
    trial.storage.current_checkpoint_index += 1  # as Tune does for the next one
    assert trial.storage.checkpoint_fs_path.endswith("trial_00001/checkpoint_000003")


def test_a_clone_goes_on_from_its_donors_checkpoint_with_its_own_config(sweep, spec):
    _, donated = saved(sweep, 0, 2)
    saved(sweep, 1, 1)
    config = sweep.config_of(1) | {"momentum": 0.3}
    name = f"trial_00000/{donated.name}"
    sweep.diary.record_checkpoint(1, name, {"training_iteration": 2})
    sweep.diary.record_clone("a8f1e000", config, 1, cloned_from="a8624273")
    trial = made(sweep, spec)[1]
    assert trial.checkpoint.path == str(donated)
    assert trial.config["momentum"] == 0.3
    assert trial.path == str(sweep.path / "trial_00001")
    assert trial.storage.current_checkpoint_index == 0


def test_a_scheduler_gets_what_it_resumes_from_and_a_retry_keeps_what_it_reserves(sweep, spec):
    saved(sweep, 1, 2)
    resources = {"bundles": [{"CPU": 2.0}], "micro_batches": 4}
    sweep.diary.record_start("a8f1e000", sweep.config_of(1), devices="2 CPU", resources=resources)
    sweep.diary.record_pickle("scheduler", b"state")
    resume = resume_of(sweep)
    trials = resume.make_trials(spec, sweep.folder.config.space)
    given = resume.for_scheduler(trials)
    assert given.state == b"state"
    assert given.trials == {"a8f1e000": trials[0]}
    assert given.saved == {"a8f1e000": 2}
    reserved = given.resources["a8f1e000"]
    assert (reserved.bundles, reserved.micro_batches) == ([{"CPU": 2.0}], 4)
    assert isinstance(given.checkpoint("trial_00001/checkpoint_000001"), Checkpoint)
    assert given.checkpoint("trial_00001/x").path == str(sweep.path / "trial_00001" / "x")


def test_a_folder_with_trials_but_without_their_record_is_refused(sweep):
    saved(sweep, 1, 1)
    sweep.leave()
    for path in sweep.path.glob("sweep.db*"):
        path.unlink()
    with pytest.raises(SweepConflictError, match=r"its record, sweep.db, is missing.*sweep.db-wal"):
        resume_of(sweep)


def test_a_lost_last_checkpoint_of_an_ended_trial_is_told(sweep):
    (path,) = saved(sweep, 1, 1)
    sweep.end(1)
    shutil.rmtree(path)
    (loss,) = resume_of(sweep).losses
    assert "a trial that has ended, is damaged or missing: its model cannot be exported" in loss


def test_configs_have_the_options_of_the_space_which_json_cannot_hold():
    sizes, kernels = ((64,), (64, (3, 3)), None), ({1: "a"}, {2: ("b", 0.5)})
    space = SearchSpace(
        {"sizes": Choice(sizes), "block": {"kernel": Choice(kernels)}, "rate": Choice([0.5, 1])}
    )
    told = {"sizes": [64, [3, 3]], "block": {"kernel": {"2": ["b", 0.5]}}, "rate": 0.5}
    assert own_values(told, space) == {
        "sizes": (64, (3, 3)),
        "block": {"kernel": {2: ("b", 0.5)}},
        "rate": 0.5,
    }


@pytest.mark.parametrize("options", [(2, "2", True, "True", None, "None", 1.5, "1.5")])
def test_an_option_is_not_taken_for_another_that_reads_alike(options):
    for order in (options, options[::-1]):
        space = SearchSpace({"option": Choice(order)})
        for option in order:
            assert own_values({"option": option}, space)["option"] is option


def test_values_that_are_no_options_any_more_stay_as_they_are():
    space = SearchSpace({"sizes": Choice([(64,), (32, 16)])})
    assert own_values({"sizes": [8]}, space) == {"sizes": [8]}
