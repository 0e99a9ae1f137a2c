"""Which checkpoints are removed while a sweep runs, by its record."""

import errno

import pytest

from tune_tf.config import SweepConfig
from tune_tf.outcome import Outcome
from tune_tf.record import Record, SweepHistory
from tune_tf.sweep.callbacks.checkpoint_retention import CheckpointRetention
from tune_tf.sweep.storage import SweepStorage

SETTINGS = {
    "name": "kept",
    "workload": "models:Mine",
    "objective": {"metric": "loss", "mode": "min"},
    "space": {"width": {"int": [1, 9]}},
    "budget": {"num_samples": 9},
}


class Sweep:
    """The record and the storage of a sweep, and a scheduler as far as the retention asks it."""

    needed_checkpoints = frozenset()

    def __init__(self, record, **settings):
        self.record, self.folder, self.now, self.num_trials = record, record.folder, 0.0, 0
        config = SweepConfig.from_dict(SETTINGS | {"keep_checkpoints": 1} | settings)
        storage = SweepStorage.of(self.folder, config)
        self.retention = CheckpointRetention(config, storage, self, record, clock=lambda: self.now)

    def trial(self, *checkpoints):
        """Begin a trial that saves checkpoints; return its number."""
        number, self.num_trials = self.num_trials, self.num_trials + 1
        self.record.record_creation(
            f"t{number}", number, {}, name=f"t{number}", tag=str(number + 1)
        )
        for each in checkpoints:
            path = self.folder / f"t{number}" / f"checkpoint_{each:06d}"
            path.mkdir(parents=True)
            self.record.record_checkpoint(number, f"t{number}/{path.name}", {})
        return number

    def end(self, number, loss, outcome=Outcome.COMPLETED, **more):
        self.record.record_result(number, {"loss": loss, "training_iteration": 1, **more})
        self.record.record_end(f"t{number}", outcome)

    def step(self):
        self.now += 60
        self.retention.on_step_end()

    @property
    def left(self):
        return sorted(
            f"{path.parent.name}/{int(path.name[-6:])}"
            for path in self.folder.glob("*/checkpoint_*")
        )

    @property
    def recorded(self):
        trials = SweepHistory.read(self.folder).trials
        return {path for trial in trials.values() for path in trial.checkpoints}

    @property
    def removed(self):
        trials = SweepHistory.read(self.folder).trials.values()
        return [trial.trial_id for trial in trials if trial.checkpoints_removed]


@pytest.fixture
def sweep(tmp_path):
    with Record(tmp_path) as record:
        yield lambda **settings: Sweep(record.begin_session(), **settings)


def test_the_best_that_ended_and_the_last_two_of_those_that_run_are_kept(sweep):
    sweep = sweep()
    worse, best, running = sweep.trial(0, 1), sweep.trial(0, 1), sweep.trial(0, 1, 2)
    sweep.end(worse, 0.9)
    sweep.end(best, 0.1)
    sweep.step()
    assert sweep.left == ["t1/0", "t1/1", "t2/1", "t2/2"]
    assert sweep.removed == ["t0"]
    assert len(sweep.recorded) == 4
    sweep.end(running, 0.05)
    sweep.step()
    assert sweep.left == ["t2/1", "t2/2"]


def test_nothing_is_removed_before_the_record_has_the_trials_end(sweep):
    sweep = sweep()
    first, second = sweep.trial(0), sweep.trial(0)
    sweep.record.begin_step()
    sweep.end(first, 0.9)
    sweep.end(second, 0.1)
    sweep.now += 60
    before = sweep.left
    assert before == ["t0/0", "t1/0"]
    sweep.record.end_step()
    sweep.step()
    assert sweep.left == ["t1/0"]


def test_checkpoints_are_looked_at_now_and_then(sweep):
    sweep = sweep()
    sweep.trial(0, 1, 2)
    sweep.now += 1
    sweep.retention.on_step_end()
    assert len(sweep.left) == 3
    sweep.step()
    assert len(sweep.left) == 2


def test_a_donors_checkpoint_stays_while_its_clone_may_resume_from_it(sweep):
    sweep = sweep()
    donor, clone, best = sweep.trial(0), sweep.trial(), sweep.trial(0)
    sweep.record.record_checkpoint(clone, "t0/checkpoint_000000", {})
    sweep.end(donor, 0.9)
    sweep.end(best, 0.1)
    sweep.step()
    assert sweep.left == ["t0/0", "t2/0"]
    for number in (1, 2):
        sweep.record.record_checkpoint(clone, f"t1/checkpoint_{number:06d}", {})
    sweep.step()
    assert sweep.left == ["t2/0"]
    assert sweep.removed == ["t0"]


def test_what_the_scheduler_may_give_to_another_trial_is_kept(sweep):
    sweep = sweep()
    sweep.trial(0, 1, 2, 3)
    sweep.needed_checkpoints = frozenset({str(sweep.folder / "t0" / "checkpoint_000001")})
    sweep.step()
    assert sweep.left == ["t0/1", "t0/2", "t0/3"]
    sweep.needed_checkpoints = frozenset({str(sweep.folder / "t0")})
    sweep.step()
    assert sweep.left == ["t0/1", "t0/2", "t0/3"]
    sweep.needed_checkpoints = frozenset()
    sweep.step()
    assert sweep.left == ["t0/2", "t0/3"]


def test_the_pareto_front_stays_where_there_are_several_objectives(sweep):
    objectives = [{"metric": "loss", "mode": "min"}, {"metric": "ms", "mode": "min"}]
    sweep = sweep(objective=objectives)
    for loss, ms in ((0.1, 9), (0.5, 1), (0.6, 2)):
        sweep.end(sweep.trial(0), loss, ms=ms)
    sweep.step()
    assert sweep.left == ["t0/0", "t1/0"]


@pytest.mark.parametrize(
    ("outcome", "left"),
    [(Outcome.INTERRUPTED, ["t0/0", "t1/0"]), (Outcome.PRUNED, ["t0/0"])],
    ids=["goes on", "makes room for a completed one"],
)
def test_a_trial_that_did_not_complete(sweep, outcome, left):
    sweep = sweep()
    sweep.end(sweep.trial(0), 0.9)
    sweep.end(sweep.trial(0), 0.1, outcome)
    sweep.step()
    assert sweep.left == left


def test_keep_checkpoints_all_keeps_the_last_two_of_each_trial(sweep):
    sweep = sweep(keep_checkpoints="all")
    sweep.end(sweep.trial(0), 0.9)
    sweep.end(sweep.trial(0, 1, 2), 0.1)
    sweep.step()
    assert sweep.left == ["t0/0", "t1/1", "t1/2"]


def test_on_a_full_disk_checkpoints_go_before_the_record_has_that(sweep, monkeypatch):
    sweep = sweep()
    sweep.trial(0, 1, 2)
    commit, is_full = sweep.record._commit, sweep.folder / "t0" / "checkpoint_000000"

    def record_if_there_is_room():
        if is_full.exists():
            raise OSError(errno.ENOSPC, "full")
        commit()

    monkeypatch.setattr(sweep.record, "_commit", record_if_there_is_room)
    sweep.step()
    assert sweep.left == ["t0/1", "t0/2"]
    assert sweep.recorded == {"t0/checkpoint_000001", "t0/checkpoint_000002"}


def test_a_checkpoint_that_cannot_be_removed_costs_no_other(sweep, monkeypatch, caplog):
    sweep = sweep()
    sweep.trial(0, 1, 2, 3)
    remove = SweepStorage.remove_checkpoint

    def fail_once(storage, path):
        if path.endswith("000000"):
            raise PermissionError(path)
        remove(storage, path)

    monkeypatch.setattr(SweepStorage, "remove_checkpoint", fail_once)
    sweep.step()
    assert sweep.left == ["t0/0", "t0/2", "t0/3"]
    assert "checkpoint_000000 cannot be removed" in caplog.text
