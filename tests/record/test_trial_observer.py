"""What the record of a sweep is told, the hooks driven by hand as Tune calls them."""

import contextlib

import pytest
from ray.train._internal.session import _TrainingResult
from ray.train._internal.storage import StorageContext
from ray.tune import Checkpoint
from ray.tune.experiment import Trial

from tune_tf import secrets
from tune_tf.objective import Objective
from tune_tf.outcome import Outcome
from tune_tf.record import (
    Record,
    SweepHistory,
    recorded_checkpoints,
    recorded_pickle,
    trial_results,
)
from tune_tf.trial_observer import TrialObserver


class Driver:
    """A driver of two trials, of which mostly one is looked at, that tells the observer."""

    def __init__(self, folder, **options):
        self.folder = folder
        self.trial, self.other = self.make("id4", 4), self.make("id5", 5)
        self.trials = [self.trial]
        self.opened = contextlib.ExitStack()
        self.record = self.opened.enter_context(Record(folder)).begin_session()
        self.observer = TrialObserver(self.record, Objective("loss", "min"), **options)

    def make(self, trial_id, number):
        trial = Trial(
            "scripted",
            stub=True,
            trial_id=trial_id,
            config={"width": number},
            experiment_tag=f"{number + 1}_width={number}",
            storage=StorageContext(str(self.folder), "sweep"),
        )
        trial.relative_logdir = f"trial_{number:05d}"
        return trial

    def leave(self):
        self.opened.close()

    def tell(self, hook, **more):
        getattr(self.observer, hook)(iteration=1, trials=self.trials, **more)

    def end_step(self, status=None):
        if status is not None:
            self.trial.set_status(status)
        self.tell("on_step_end")
        self.tell("on_step_begin")

    def report(self, iteration, **more):
        result = {"loss": 0.5, "training_iteration": iteration, "trial_id": "id4", **more}
        self.tell("on_trial_result", trial=self.trial, result=dict(result))
        self.trial.run_metadata.last_result = result

    def save(self, trial, owner, number, iteration):
        """Have a trial's newest checkpoint be one of the owner's."""
        folder = f"{trial.storage.experiment_fs_path}/{owner.relative_logdir}"
        checkpoint = Checkpoint(f"{folder}/checkpoint_{number:06d}")
        saved = _TrainingResult(checkpoint, {"training_iteration": iteration, "config": {}})
        trial.run_metadata.checkpoint_manager._latest_checkpoint_result = saved

    def start(self):
        self.trial.set_status("RUNNING")
        self.tell("on_trial_start", trial=self.trial)

    def complete(self):
        result = {"loss": 0.5, "training_iteration": 1, "done": True, "stop_reason": "completed"}
        self.tell("on_trial_result", trial=self.trial, result={**result, "trial_id": "id4"})
        self.trial.run_metadata.last_result = result
        self.tell("on_trial_complete", trial=self.trial)

    @property
    def recorded(self):
        return SweepHistory.read(self.folder).trials["id4"]


@pytest.fixture
def driver(tmp_path):
    """Return a function that begins a driver."""
    begun = []

    def driver(**options):
        begun.append(Driver(tmp_path, **options))
        return begun[-1]

    yield driver
    for each in begun:
        each.leave()


def test_secrets_in_the_log_of_a_trial_that_has_ended_are_masked(driver, tmp_path, monkeypatch):
    monkeypatch.setattr(secrets, "_registered", frozenset())
    monkeypatch.setenv("PLANTED_API_TOKEN", "planted-t0ken")
    secrets.register_secrets({"pwd": "in-the-data"})
    secrets.expand_references("postgresql://me:${MINE}@host/db", "storage", {"MINE": "in-the-uri"})
    ended = driver()
    log = tmp_path / str(ended.trial) / "log.txt"
    log.parent.mkdir()
    log.write_text("planted-t0ken, in-the-uri, in-the-data\n")
    ended.start()
    ended.complete()
    assert log.read_text() == "*************, **********, ***********\n"


def test_why_a_trial_is_paused_and_goes_on_is_noted_until_it_ends(driver):
    reasons = [None, "chance: 3%", "chance: 40%"]
    paused = driver(explain=lambda trial: reasons.pop(0))
    paused.start()
    assert paused.recorded.cause is None
    paused.trial.set_status("PAUSED")
    paused.tell("on_step_end")
    assert (paused.recorded.state, paused.recorded.cause) == ("paused", "chance: 3%")
    paused.start()
    assert (paused.recorded.state, paused.recorded.cause) == ("running", "chance: 40%")
    paused.complete()
    assert paused.recorded.cause is None


def test_a_step_is_recorded_at_its_end_with_the_schedulers_state(driver):
    states = [b"one", None]
    stepping = driver(snapshot=lambda: states.pop(0), note_of=lambda trial_id: {"of": trial_id})
    stepping.tell("on_step_begin")
    stepping.start()
    stepping.report(1)
    stepping.save(stepping.trial, stepping.trial, 0, 1)
    assert SweepHistory.read(stepping.folder).trials == {}
    stepping.end_step()
    recorded = stepping.recorded
    assert (recorded.number, recorded.tag, recorded.state) == (4, "5_width=4", "running")
    assert recorded.note == {"of": "id4"}
    assert recorded.last["loss"] == 0.5
    assert recorded_checkpoints(stepping.folder, 4) == {
        "trial_00004/checkpoint_000000": {"training_iteration": 1}
    }
    stepping.end_step()
    assert recorded_pickle(stepping.folder, "scheduler") == b"one"


def test_a_trial_that_fails_and_waits_is_recorded_as_one_that_waits(driver):
    failing = driver()
    failing.start()
    failing.end_step()
    failing.trial.run_metadata.num_failures = 1
    failing.end_step("PENDING")
    assert (failing.recorded.state, failing.recorded.failures) == ("pending", 1)
    failing.start()
    assert failing.recorded.state == "pending"  # until the step's end
    failing.end_step()
    assert failing.recorded.state == "running"


def test_a_clone_is_recorded_with_its_donor_and_counts_from_its_next_result(driver):
    cloning = driver()
    cloning.trials = [cloning.trial, cloning.other]
    cloning.tell("on_trial_start", trial=cloning.other)
    cloning.start()
    cloning.report(1)
    cloning.save(cloning.trial, cloning.trial, 0, 1)
    cloning.end_step()
    cloning.trial.set_config({"width": 9})
    cloning.trial.set_experiment_tag("5_width=9@perturbed")
    cloning.save(cloning.trial, cloning.other, 3, 2)
    cloning.end_step("PAUSED")
    recorded = cloning.recorded
    assert (recorded.state, recorded.exploits, recorded.cloned_from) == ("paused", 1, "id5")
    assert (recorded.config, recorded.suggested) == ({"width": 9}, {"width": 4})
    assert recorded.tag == "5_width=9@perturbed"
    assert recorded.checkpoints[-1] == "trial_00005/checkpoint_000003"
    cloning.start()
    cloning.report(3)
    cloning.save(cloning.trial, cloning.trial, 1, 3)
    cloning.end_step()
    assert [(it.config, it.exploits) for it in trial_results(cloning.folder, 4)] == [
        (None, 0),
        ({"width": 9}, 1),
    ]
    assert cloning.recorded.exploits == 1


def test_a_changed_config_belongs_to_the_results_that_were_trained_with_it(driver, tmp_path):
    changed = driver()
    changed.start()
    changed.report(1, config={"width": 4})
    changed.trial.set_config({"width": 9})  # the scheduler has, on this result
    changed.report(2, config={"width": 4})
    changed.report(3, config={"width": 9})
    changed.report(4, config={"width": 9})
    changed.end_step()
    assert [result.config for result in trial_results(tmp_path, 4)] == [
        *(None, None, {"width": 9}, None)
    ]


def test_an_end_that_no_hook_tells_is_found(driver):
    stopped = driver()
    stopped.start()
    stopped.report(1)
    stopped.end_step("TERMINATED")
    assert (stopped.recorded.state, stopped.recorded.outcome) == ("ended", Outcome.OUT_OF_BUDGET)
    assert stopped.observer.outcomes == {"id4": Outcome.OUT_OF_BUDGET}


@pytest.mark.parametrize(("status", "state"), [("PAUSED", "paused"), ("RUNNING", "ended")])
def test_trials_that_go_on_later_are_interrupted_and_paused_ones_stay_paused(driver, status, state):
    interrupted = driver()
    interrupted.start()
    interrupted.report(1)
    interrupted.end_step(status)
    interrupted.trial.set_status("TERMINATED")  # as Tune cleans up
    interrupted.tell("on_experiment_end")
    recorded = interrupted.recorded
    assert (recorded.state, recorded.outcome, recorded.goes_on) == (
        state,
        Outcome.INTERRUPTED,
        True,
    )


def test_a_resumed_trial_is_not_recorded_anew(driver):
    first = driver()
    first.start()
    first.report(1)
    first.save(first.trial, first.trial, 0, 1)
    first.end_step("PAUSED")
    first.tell("on_step_end")
    first.leave()
    again = driver()
    again.save(again.trial, again.trial, 0, 1)
    again.trial.set_status("PAUSED")
    again.tell("on_step_begin")
    again.end_step()
    assert (again.recorded.state, again.recorded.checkpoints) == (
        "paused",
        ("trial_00004/checkpoint_000000",),
    )
    assert again.recorded.last["training_iteration"] == 1
