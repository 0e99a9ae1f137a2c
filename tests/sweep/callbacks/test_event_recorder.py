"""What the diary of a sweep is told, the hooks driven by hand as Tune calls them."""

from types import SimpleNamespace

import pytest

from tune_tf.events import EventHistory, EventLog
from tune_tf.objective import Objective
from tune_tf.outcome import Outcome


@pytest.fixture
def trial_of():
    """Make Tune's own trial, without a trainable."""
    from ray.tune.experiment import Trial

    def trial_of(number, status="PENDING"):
        trial = Trial(
            "scripted",
            stub=True,
            trial_id=f"id{number}",
            config={"width": number},
            experiment_tag=f"{number + 1}_width={number}",
        )
        trial.set_status(status)
        return trial

    return trial_of


class Driver:
    """A driver that tells its callbacks what happens; ``outcomes`` is what a resume restores."""

    def __init__(self, folder, outcomes=()):
        from tune_tf.sweep.callbacks.recorders import EventRecorder
        from tune_tf.tracking import OutcomeTracker

        self.folder = folder
        self.diary = EventLog(folder)
        self.diary.__enter__()
        outcome_tracker = OutcomeTracker(Objective("loss", "min"))
        outcome_tracker.set_state({"ended": {each: outcome.value for each, outcome in outcomes}})
        self.callbacks = [outcome_tracker, EventRecorder(self.diary, outcome_tracker)]

    def tell(self, hook, *trials, **more):
        for callback in self.callbacks:
            getattr(callback, hook)(iteration=1, trials=list(trials), **more)

    def start(self, *trials):
        for trial in trials:
            trial.set_status("RUNNING")
            self.tell("on_trial_start", *trials, trial=trial)

    def report(self, trial, **more):
        result = {"loss": 0.5, "training_iteration": 1, "trial_id": trial.trial_id, **more}
        self.tell("on_trial_result", trial, trial=trial, result=result)
        trial.run_metadata.last_result = result

    def end(self, *trials):
        for callback in self.callbacks:
            callback.on_experiment_end(list(trials))
        self.leave()

    def leave(self):
        self.diary.__exit__(None, None, None)

    @property
    def pages(self):
        return EventHistory.read(self.folder).trials


def test_a_trial_is_told_with_its_number_config_outcome_and_cause(trial_of, tmp_path):
    driver, trial = Driver(tmp_path), trial_of(4)
    driver.start(trial)
    driver.report(trial, done=True, stop_reason="diverged", stop_cause="loss is NaN")
    driver.tell("on_trial_complete", trial, trial=trial)
    page = driver.pages["id4"]
    assert (page.number, page.config, page.outcome) == (4, {"width": 4}, Outcome.DIVERGED)
    assert page.cause == "loss is NaN"
    assert page.started_s <= page.ended_s
    driver.leave()


def test_a_trial_that_starts_before_an_earlier_one_does_not_hide_it(trial_of, tmp_path):
    driver, first, second, third = Driver(tmp_path), *map(trial_of, range(3))
    second.set_status("RUNNING")
    driver.tell("on_trial_start", first, second, third, trial=second)
    assert [(page.number, page.waiting) for page in driver.pages.values()] == [
        (0, "pending"),
        (1, None),
    ]
    assert driver.pages["id0"].config == {"width": 0}

    first.set_status("RUNNING")
    driver.tell("on_trial_start", first, second, third, trial=first)
    assert driver.pages["id0"].waiting is None
    assert driver.pages["id0"].started_s
    driver.leave()


def test_a_trial_that_the_scheduler_pauses_waits_until_it_goes_on(trial_of, tmp_path):
    driver, trial = Driver(tmp_path), trial_of(0)
    driver.start(trial)
    trial.set_status("PAUSED")
    driver.tell("on_step_end", trial)
    assert driver.pages["id0"].waiting == "paused"
    driver.start(trial)
    assert driver.pages["id0"].waiting is None
    driver.leave()


def test_trials_that_tune_stops_without_a_word_are_told(trial_of, tmp_path):
    driver, running, waiting = Driver(tmp_path), trial_of(0), trial_of(1)
    driver.start(running)
    driver.report(running)
    driver.tell("on_step_end", running, waiting)
    for trial in (running, waiting):
        trial.set_status("TERMINATED")
    driver.tell("on_step_end", running, waiting)
    outcomes = {trial_id: page.outcome for trial_id, page in driver.pages.items()}
    assert outcomes == {"id0": Outcome.OUT_OF_BUDGET, "id1": Outcome.OUT_OF_BUDGET}
    assert driver.pages["id1"].started_s is None
    driver.leave()


def test_a_resume_tells_no_end_again_and_lets_interrupted_trials_wait(trial_of, tmp_path):
    first, ended, running = Driver(tmp_path), trial_of(0), trial_of(1)
    first.start(ended, running)
    first.report(ended, done=True, stop_reason="completed")
    first.tell("on_trial_complete", ended, trial=ended)
    ended.set_status("TERMINATED")
    first.end(ended, running)
    assert first.pages["id1"].outcome is Outcome.INTERRUPTED
    size = len((tmp_path / "events.jsonl").read_text().splitlines())

    restored = [("id0", Outcome.COMPLETED), ("id1", Outcome.INTERRUPTED)]
    second = Driver(tmp_path, restored)
    running.set_status("PENDING")
    second.tell("on_step_end", ended, running)
    assert len((tmp_path / "events.jsonl").read_text().splitlines()) == size + 1  # begun
    assert second.pages["id1"].waiting == "pending"
    second.start(running)
    second.report(running, done=True, stop_reason="pruned")
    second.tell("on_trial_complete", running, trial=running)
    assert second.pages["id1"].outcome is Outcome.PRUNED
    second.leave()


def test_a_resume_tells_an_end_that_the_diary_lost(trial_of, tmp_path):
    driver, trial = Driver(tmp_path, [("id0", Outcome.PRUNED)]), trial_of(0, "TERMINATED")
    driver.tell("on_step_end", trial)
    assert driver.pages["id0"].outcome is Outcome.PRUNED
    driver.leave()


def test_a_run_that_is_made_after_the_last_step_is_noted(tmp_path):
    from tune_tf.sweep.callbacks.recorders import EventRecorder

    driver, tracker = Driver(tmp_path), SimpleNamespace(parent_run_id=None)
    driver.callbacks[1] = EventRecorder(driver.diary, driver.callbacks[0], tracker)
    driver.tell("on_step_end")
    assert driver.diary.history.run_id is None
    tracker.parent_run_id = "f" * 32
    driver.callbacks[1].on_experiment_end([])
    assert driver.diary.history.run_id == "f" * 32
    driver.leave()


def test_secrets_in_the_log_of_a_trial_that_has_ended_are_masked(trial_of, tmp_path, monkeypatch):
    from tune_tf import secrets
    from tune_tf.sweep.callbacks.recorders import EventRecorder

    monkeypatch.setattr(secrets, "_registered", frozenset())
    monkeypatch.setenv("PLANTED_API_TOKEN", "planted-t0ken")
    driver, trial = Driver(tmp_path), trial_of(4)
    outcome_tracker, _ = driver.callbacks
    secrets.register_secrets({"pwd": "in-the-data"}, ["postgresql://me:in-the-uri@host/db"])
    driver.callbacks[1] = EventRecorder(driver.diary, outcome_tracker)
    log = tmp_path / "trial_00004" / "log.txt"
    log.parent.mkdir()
    log.write_text("planted-t0ken, in-the-uri, in-the-data\n")
    driver.start(trial)
    driver.report(trial, done=True, stop_reason="completed")
    driver.tell("on_trial_complete", trial, trial=trial)
    assert log.read_text() == "*************, **********, ***********\n"
    driver.leave()


def test_why_a_trial_is_paused_and_goes_on_is_noted_until_it_ends(trial_of, tmp_path):
    from tune_tf.sweep.callbacks.recorders import EventRecorder

    driver, trial, reasons = Driver(tmp_path), trial_of(4), [None, "chance: 3%", "chance: 40%"]
    driver.callbacks[1] = EventRecorder(
        driver.diary, driver.callbacks[0], explain=lambda trial: reasons.pop(0)
    )
    driver.start(trial)
    assert driver.pages["id4"].cause is None
    trial.set_status("PAUSED")
    driver.tell("on_step_end", trial)
    assert (driver.pages["id4"].waiting, driver.pages["id4"].cause) == ("paused", "chance: 3%")
    driver.start(trial)
    assert (driver.pages["id4"].waiting, driver.pages["id4"].cause) == (None, "chance: 40%")
    driver.report(trial, done=True, stop_reason="completed")
    driver.tell("on_trial_complete", trial, trial=trial)
    assert driver.pages["id4"].cause is None
    driver.leave()
