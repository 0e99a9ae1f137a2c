"""No new trial starts while there is too little room on a disk."""

import signal
from pathlib import Path
from unittest.mock import Mock

import pytest

from tune_tf.events import EventHistory, EventLog
from tune_tf.objective import Objective
from tune_tf.space import Float, SearchSpace

LIMIT = 2 * 10**9


class Disk:
    """A disk with as much room as it is given."""

    def __init__(self, free=10 * LIMIT):
        self.free, self.now, self.told = free, 0.0, []

    def guard(self, min_free_bytes=LIMIT, **settings):
        from tune_tf.sweep.callbacks.guards import DiskGuard

        return DiskGuard(
            min_free_bytes,
            [Path("/sweeps"), Path("/ray")],
            on_pause=self.told.append,
            on_resume=lambda: self.told.append(None),
            free=lambda path: self.free,
            clock=lambda: self.now,
            **settings,
        )

    def turn(self, free):
        self.free, self.now = free, self.now + 60


def test_trials_wait_until_there_is_room_again_and_that_is_told_once(caplog):
    disk = Disk()
    guard = disk.guard()
    assert guard.may_start()
    disk.turn(LIMIT - 1)
    assert not guard.may_start()
    disk.turn(LIMIT // 2)
    guard.on_step_end(iteration=1, trials=[])
    disk.turn(LIMIT)  # hardly enough: it would begin and stop all the time
    assert not guard.may_start()
    disk.turn(2 * LIMIT)
    assert guard.may_start()
    why = "2 GB are free at /sweeps, and min_free_disk is 2 GB"
    assert disk.told == [why, None]
    assert [record.message for record in caplog.records] == [
        f"no new trial starts: {why}. The sweep continues by itself once there is space",
        "there is space on the disk again: new trials start",
    ]


def test_trials_are_held_back_though_there_is_no_room_to_note_it(caplog):
    disk = Disk(free=0)
    guard = disk.guard()
    guard._on_pause = Mock(side_effect=OSError("No space left on device"))
    assert not guard.may_start()
    assert "no new trial starts" in caplog.text


def test_the_disk_is_not_asked_at_every_step():
    disk = Disk()
    guard = disk.guard()
    assert guard.may_start()
    disk.free = 0
    assert guard.may_start()


def test_without_a_limit_trials_start_on_a_full_disk():
    assert Disk(free=0).guard(min_free_bytes=0).may_start()


def test_the_room_is_that_of_the_disk(tmp_path):
    from tune_tf.sweep.callbacks.guards import free_bytes

    assert free_bytes(tmp_path) > 0


def test_a_place_that_is_gone_holds_nothing_back(tmp_path):
    from tune_tf.sweep.callbacks.guards import DiskGuard

    told = []
    guard = DiskGuard(1, [tmp_path / "gone"], on_pause=told.append, on_resume=lambda: None)
    assert guard.may_start()


def test_the_diary_tells_that_trials_are_held_back_until_they_are_not(tmp_path):
    with EventLog(tmp_path) as diary:
        diary.record_suspension("nothing is free")
        assert EventHistory.read(tmp_path).suspension == "nothing is free"
        diary.record_resumption()
        assert EventHistory.read(tmp_path).suspension is None
        diary.record_suspension("nothing is free")
    with EventLog(tmp_path):
        assert EventHistory.read(tmp_path).suspension is None


def test_a_pausing_scheduler_stops_no_waiting_trial_while_new_ones_are_held_back():
    from tune_tf.config import BudgetSettings
    from tune_tf.schedulers.pausing import _counts_waiting
    from tune_tf.searchers import OptunaSearcher
    from tune_tf.sweep.runner import SweepSearch

    disk = Disk()
    searcher = OptunaSearcher(SearchSpace({"rate": Float(0, 1)}), Objective("loss", "min"))
    search = SweepSearch(searcher, BudgetSettings(num_samples=4), 2, disk.guard())
    assert _counts_waiting(search, 2)
    disk.turn(0)
    assert not _counts_waiting(search, 2)


@pytest.fixture
def run(inline, tmp_path):
    """Run trials of one iteration under a guard; return Tune's trials."""
    from ray import tune

    from tune_tf.config import BudgetSettings
    from tune_tf.searchers import OptunaSearcher
    from tune_tf.sweep.runner import SweepSearch

    def once(config):
        return {"loss": config["rate"], "done": True}

    def run(disk, num_samples, **settings):
        guard = disk.guard()
        searcher = OptunaSearcher(
            SearchSpace({"rate": Float(0, 1)}), Objective("loss", "min"), "random", seed=1
        )
        analysis = tune.run(
            once,
            search_alg=SweepSearch(searcher, BudgetSettings(num_samples=num_samples), 1, guard),
            num_samples=num_samples,
            storage_path=str(tmp_path),
            callbacks=[guard],
            raise_on_failed_trial=False,
            verbose=0,
            **settings,
        )
        return analysis.trials

    return run


class Script(Disk):
    """A disk that is full once it was asked a few times, and then does something."""

    def __init__(self, then):
        super().__init__()
        self._looks, self._then = 0, then

    def guard(self, **settings):
        guard = super().guard(**settings)
        guard._free = self._look
        return guard

    def _look(self, path):
        self.now += 60
        self._looks += 1
        if self._looks == 3:
            self._then(self)
        return self.free if self._looks >= 3 else 0


def test_rays_files_of_this_machine_are_the_users(ray_cluster):
    from tune_tf.sweep.cluster import runs_as_user, session_folder

    assert session_folder().is_dir()
    assert runs_as_user()


def test_a_cluster_that_is_elsewhere_has_no_files_here(monkeypatch):
    import ray

    from tune_tf.sweep.cluster import runs_as_user, session_folder

    monkeypatch.setattr(ray, "get_runtime_context", object)
    assert session_folder() is None
    assert not runs_as_user()


def test_a_sweep_with_no_trial_left_waits_and_goes_on_by_itself(run):
    disk = Script(then=lambda disk: None)
    trials = run(disk, 2)
    assert [trial.status for trial in trials] == ["TERMINATED"] * 2
    assert disk.told[1:] == [None]


def test_ctrl_c_ends_a_sweep_that_waits_for_room(run):
    from tune_tf.tune_internals.trial_state import latest_result

    disk = Script(then=lambda disk: (disk.turn(0), signal.raise_signal(signal.SIGINT)))
    trials = run(disk, 2)
    assert [latest_result(trial) for trial in trials] == [{}]
    assert len(disk.told) == 1


def test_the_time_budget_ends_a_sweep_that_waits_for_room(run):
    from tune_tf.tune_internals.trial_state import latest_result

    disk = Disk(free=0)
    trials = run(disk, 2, time_budget_s=1)
    assert [latest_result(trial) for trial in trials] == [{}]
