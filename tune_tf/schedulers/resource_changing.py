"""Scheduler that distributes free devices among the running trials."""

from typing import Any

from ray.tune import PlacementGroupFactory
from ray.tune.experiment import Trial
from ray.tune.schedulers import ResourceChangingScheduler, TrialScheduler
from ray.tune.schedulers.resource_changing_scheduler import DistributeResources

from tune_tf.config.scheduler_settings import ResourceChangingSettings
from tune_tf.objective import Objective
from tune_tf.schedulers.outcome_mixin import OutcomeMixin
from tune_tf.schedulers.state import ResumeMixin


class ResizingScheduler(ResumeMixin, ResourceChangingScheduler):
    """Ray's ``ResourceChangingScheduler`` around another of tune_tf's schedulers.

    After each result, a trial gets an even share of the free devices: whole GPUs, or its initial
    number of CPUs once more, or more bundles if its reservation has several. It is paused for that
    and continues in a new process, so it must save checkpoints; an actor cannot be resized.
    """

    settings: ResourceChangingSettings
    fresh_actors = True

    def __init__(
        self, objective: Objective, settings: ResourceChangingSettings, base: OutcomeMixin
    ) -> None:
        """Create Ray's scheduler."""
        ResourceChangingScheduler.__init__(self, base, _share_evenly)
        self._configure(objective, settings)
        self.base = base
        self._resizing: set[str] = set()

    @property
    def rungs(self) -> tuple[int, ...]:
        """Iterations at which trials are compared, ascending; empty if there are none."""
        return self.base.rungs

    @property
    def num_to_keep(self) -> int | None:
        """Number of checkpoints of a trial that Tune must keep; None for all."""
        return self.base.num_to_keep

    @property
    def needed_checkpoints(self) -> frozenset[str]:
        """Checkpoints that the base scheduler may still need."""
        return self.base.needed_checkpoints

    def explain(self, trial: Trial) -> str | None:
        """Return the base scheduler's reason."""
        return self.base.explain(trial)

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Return the base scheduler's decision, or PAUSE for a trial to be resized."""
        self._restore_state(tune_controller)
        decision = super().on_trial_result(tune_controller, trial, result)
        self._resizing.discard(trial.trial_id)
        if decision == TrialScheduler.PAUSE and trial in self._trials_to_reallocate:
            self._resizing.add(trial.trial_id)
        return decision

    def choose_trial_to_run(self, tune_controller: Any, **options: Any) -> Trial | None:
        """Return the trial to run next: the base scheduler resumes only what it paused itself."""
        next_trial = super().choose_trial_to_run(tune_controller, **options)
        resized = (
            trial
            for trial in tune_controller.get_trials()
            if trial.status == Trial.PAUSED and trial.trial_id in self._resizing
        )
        return next_trial or next(resized, None)


def _share_evenly(
    tune_controller: Any,
    trial: Trial,
    result: dict[str, Any],
    scheduler: ResourceChangingScheduler,
) -> PlacementGroupFactory | None:
    """Return a trial's new reservation by Ray's even distribution; None for no change."""
    if type(trial.placement_group_factory) is not PlacementGroupFactory:
        return None  # resized after running out of memory
    base = scheduler.base_trial_resources.bundles
    # Resizing restarts the trial; a CPU without another replica is not worth it.
    cpus = 0 if base[0].get("GPU") else base[0].get("CPU", 0)
    distribute = DistributeResources(
        add_bundles=len(base) > 1,
        increase_by={"CPU": cpus} if len(base) == 1 and cpus else None,
    )
    reservation = distribute(tune_controller, trial, result, scheduler)
    return reservation and _round_gpus(reservation)


def _round_gpus(reservation: PlacementGroupFactory) -> PlacementGroupFactory:
    """Return a valid reservation: Ray adds whole GPUs even to a fraction of one."""
    gpus = [bundle.get("GPU", 0) for bundle in reservation.bundles]
    if all(count <= 1 or count == int(count) for count in gpus):
        return reservation
    bundles = [{**bundle, "GPU": int(bundle["GPU"])} for bundle in reservation.bundles]
    return PlacementGroupFactory(bundles, strategy=reservation.strategy)
