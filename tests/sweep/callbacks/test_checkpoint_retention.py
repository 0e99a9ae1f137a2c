"""Which checkpoints are removed while a sweep runs, the hooks called by hand as Tune calls them."""

import pytest

from tune_tf.config import SweepConfig
from tune_tf.outcome import Outcome
from tune_tf.sweep.storage import SweepStorage

SETTINGS = {
    "name": "kept",
    "workload": "models:Mine",
    "objective": {"metric": "loss", "mode": "min"},
    "space": {"width": {"int": [1, 9]}},
    "budget": {"num_samples": 9},
}


class Scheduler:
    """A scheduler as far as the keeper asks it."""

    num_to_keep = 2
    needed_checkpoints = frozenset()


class Sweep:
    """A sweep in Tune's hands and its snapshots; :meth:`step` takes one, which may be written."""

    def __init__(self, folder, scheduler=None, **settings):
        from tune_tf.sweep.callbacks.checkpoint_retention import CheckpointRetention
        from tune_tf.tracking import OutcomeTracker

        self.folder, self.now, self.iteration, self.trials = folder, 0.0, 0, []
        self.written, self.told = None, []
        self.outcome_tracker = OutcomeTracker()
        self.scheduler = scheduler or Scheduler()
        config = SweepConfig.from_dict(SETTINGS | {"keep_checkpoints": 1} | settings)
        self.keeper = CheckpointRetention(
            config,
            SweepStorage.of(folder, config),
            self,
            self.scheduler,
            self.outcome_tracker,
            self.told.append,
            clock=lambda: self.now,
        )

    def trial(self, *checkpoints):
        """Add a trial that runs and has saved checkpoints."""
        from ray.tune import Checkpoint
        from ray.tune.experiment import Trial

        class Placed(Trial):
            path = property(lambda trial: str(self.folder / trial.trial_id))
            checkpoint = None

        trial = Placed("scripted", stub=True, trial_id=f"t{len(self.trials)}")
        trial.set_status("RUNNING")
        self.trials.append(trial)
        for number in checkpoints:
            made = self.folder / trial.trial_id / f"checkpoint_{number:06d}"
            made.mkdir(parents=True)
            trial.checkpoint = Checkpoint(str(made))
            self.keeper.on_checkpoint(
                iteration=0, trials=self.trials, trial=trial, checkpoint=trial.checkpoint
            )
        return trial

    def end(self, trial, loss, outcome=Outcome.COMPLETED, **more):
        trial.run_metadata.last_result = {"loss": loss, "training_iteration": 1, **more}
        trial.set_status("TERMINATED")
        ended = {**self.outcome_tracker.outcomes, trial.trial_id: outcome}
        self.outcome_tracker.set_state({"ended": {each: it.value for each, it in ended.items()}})

    def step(self, *, written=True):
        self.keeper.on_step_begin(iteration=self.iteration, trials=self.trials)
        moment = self.keeper.current_needs()
        if written:
            self.written = moment
        self.iteration += 1
        self.now += 60
        self.keeper.on_step_end(iteration=self.iteration, trials=self.trials)

    @property
    def left(self):
        return sorted(
            f"{path.parent.name}/{int(path.name[-6:])}"
            for path in self.folder.glob("*/checkpoint_*")
        )


@pytest.fixture
def sweep(tmp_path):
    return Sweep(tmp_path)


def test_checkpoints_stay_until_a_snapshot_records_the_trials_end(sweep):
    sweep.step()
    sweep.end(sweep.trial(0), 0.9)
    sweep.end(sweep.trial(0), 0.1)
    sweep.step(written=False)
    assert sweep.left == ["t0/0", "t1/0"]
    sweep.step()
    assert sweep.left == ["t1/0"]


def test_a_donors_checkpoint_stays_until_its_clone_has_its_own(sweep):
    donor, cloned = sweep.trial(0), sweep.trial()
    cloned.checkpoint = donor.checkpoint
    sweep.end(donor, 0.9)
    sweep.end(sweep.trial(0), 0.1)
    sweep.step()
    assert sweep.left == ["t0/0", "t2/0"]
    cloned.checkpoint = None
    sweep.step(written=False)
    assert sweep.left == ["t0/0", "t2/0"]  # a resume would still find it in the last snapshot
    sweep.step()
    assert sweep.left == ["t2/0"]


def test_a_population_keeps_the_newest_of_each_trial_and_what_donors_give(tmp_path):
    scheduler = Scheduler()
    scheduler.num_to_keep = None
    sweep = Sweep(tmp_path, scheduler)
    sweep.trial(0, 1, 2, 3)
    scheduler.needed_checkpoints = frozenset({str(tmp_path / "t0" / "checkpoint_000001")})
    sweep.step()
    assert sweep.left == ["t0/1", "t0/2", "t0/3"]
    scheduler.needed_checkpoints = frozenset({str(tmp_path / "t0")})
    sweep.step()
    scheduler.needed_checkpoints = frozenset()
    sweep.step()
    assert sweep.left == ["t0/2", "t0/3"]


def test_the_pareto_front_stays_where_there_are_several_objectives(tmp_path):
    objectives = [{"metric": "loss", "mode": "min"}, {"metric": "ms", "mode": "min"}]
    sweep = Sweep(tmp_path, objective=objectives)
    for loss, ms in ((0.1, 9), (0.5, 1), (0.6, 2)):
        sweep.end(sweep.trial(0), loss, ms=ms)
    sweep.step()
    assert sweep.left == ["t0/0", "t1/0"]


def test_the_best_that_ended_and_those_that_run_keep_their_checkpoints(sweep):
    worse, best, running = sweep.trial(0, 1), sweep.trial(0, 1), sweep.trial(0)
    sweep.end(worse, 0.9)
    sweep.end(best, 0.1)
    sweep.step()
    assert sweep.left == ["t1/0", "t1/1", "t2/0"]
    assert sweep.told == ["t0"]
    sweep.end(running, 0.05)
    sweep.step()
    assert sweep.left == ["t2/0"]


def test_a_trial_that_was_interrupted_keeps_what_it_goes_on_from(sweep):
    best, interrupted = sweep.trial(0), sweep.trial(0)
    sweep.end(best, 0.1)
    sweep.end(interrupted, 0.9, Outcome.INTERRUPTED)
    sweep.step()
    assert sweep.left == ["t0/0", "t1/0"]


def test_a_trial_that_was_stopped_early_makes_room_for_completed_ones(sweep):
    pruned, completed = sweep.trial(0), sweep.trial(0)
    sweep.end(pruned, 0.1, Outcome.PRUNED)
    sweep.end(completed, 0.9)
    sweep.step()
    assert sweep.left == ["t1/0"]


def test_keep_checkpoints_all_removes_none(tmp_path):
    sweep = Sweep(tmp_path, keep_checkpoints="all")
    sweep.end(sweep.trial(0), 0.9)
    sweep.end(sweep.trial(0), 0.1)
    sweep.step()
    assert sweep.left == ["t0/0", "t1/0"]
