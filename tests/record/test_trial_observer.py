"""What the record of a sweep is told, the hooks driven by hand as Tune calls them."""

import pytest
from ray.tune.experiment import Trial

from tune_tf import secrets
from tune_tf.objective import Objective
from tune_tf.record import Record, SweepHistory
from tune_tf.trial_observer import TrialObserver


class Driver:
    """A driver of one trial that tells the observer what happens."""

    def __init__(self, folder, explain=lambda trial: None):
        self.folder = folder
        self.trial = Trial(
            "scripted", stub=True, trial_id="id4", config={"width": 4}, experiment_tag="5_width=4"
        )
        self.record = Record(folder)
        self.record.begin_session()
        objective = Objective("loss", "min")
        self.observer = TrialObserver(self.record, objective, explain=explain)

    def tell(self, hook, **more):
        getattr(self.observer, hook)(iteration=1, trials=[self.trial], **more)

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
        each.record.__exit__(None, None, None)


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
