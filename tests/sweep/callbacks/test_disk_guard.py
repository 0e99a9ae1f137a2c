"""No new trial starts while there is too little room on a disk."""

from pathlib import Path

import pytest

from tune_tf.config import SweepConfig
from tune_tf.objective import Objective
from tune_tf.space import Float, SearchSpace

LIMIT = 2 * 10**9
CONFIG = SweepConfig(
    name="full",
    workload="models:Mine",
    objective={"metric": "loss", "mode": "min"},
    space={"rate": {"uniform": [0, 1]}},
    budget={"num_samples": 2},
)


class Disk:
    """A disk with as much room as it is given."""

    def __init__(self, free=10 * LIMIT):
        self.free, self.now, self.told = free, 0.0, []

    def guard(self, min_free_bytes=LIMIT, **settings):
        from tune_tf.sweep.callbacks.guards import DiskGuard

        return DiskGuard(
            min_free_bytes,
            [Path("/sweeps"), Path("/ray")],
            on_change=self.told.append,
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


@pytest.fixture
def run(inline, tmp_path):
    """Run trials of one iteration under a guard; return Tune's trials."""
    from ray import tune

    from tune_tf.searchers import OptunaSearcher
    from tune_tf.sweep.runner import SweepSearch
    from tune_tf.sweep.stopper import SweepStopper

    def once(config):
        return {"loss": config["rate"], "done": True}

    def run(disk, num_samples, **settings):
        guard = disk.guard()
        searcher = OptunaSearcher(
            SearchSpace({"rate": Float(0, 1)}), Objective("loss", "min"), "random", seed=1
        )
        analysis = tune.run(
            once,
            search_alg=SweepSearch(searcher, 1, guard, SweepStopper(CONFIG)),
            num_samples=num_samples,
            storage_path=str(tmp_path),
            callbacks=[guard],
            raise_on_failed_trial=False,
            verbose=0,
            **settings,
        )
        return analysis.trials

    return run


class FreedDisk(Disk):
    """A disk that is full until it was asked a few times."""

    num_asked = 0

    def guard(self, **settings):
        guard = super().guard(**settings)
        guard._free = self._ask
        return guard

    def _ask(self, path):
        self.now += 60
        self.num_asked += 1
        return self.free if self.num_asked >= 3 else 0


def test_a_sweep_with_no_trial_left_waits_and_goes_on_by_itself(run):
    disk = FreedDisk()
    trials = run(disk, 2)
    assert [trial.status for trial in trials] == ["TERMINATED"] * 2
    assert disk.told[1:] == [None]
