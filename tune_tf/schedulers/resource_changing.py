"""Free devices are given to the trials that run."""

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

    After each result, a trial gets an even share of the devices that are free: whole GPUs, or as
    many CPUs once more as it began with, or more bundles where its reservation has several. It is
    paused for that and goes on in a new process, so it has to save checkpoints.

    Args:
        objective: The metric that is compared.
        settings: Those of the scheduler inside.
        base: The scheduler inside, which decides on trials and tells why they ended.

    Attributes:
        num_to_keep: As the scheduler inside needs it.
        fresh_actors: True: an actor cannot be resized.
    """

    settings: ResourceChangingSettings
    fresh_actors = True

    def __init__(
        self, objective: Objective, settings: ResourceChangingSettings, base: OutcomeMixin
    ) -> None:
        """Make Ray's scheduler."""
        ResourceChangingScheduler.__init__(self, base, _Shares())
        self._begin(objective, settings)
        self.base = base
        self._resizing: set[str] = set()

    @property
    def metric(self) -> str:
        """The metric that Tune checks each result for."""
        return self.objective.metric

    @property
    def rungs(self) -> tuple[int, ...]:
        """Return the iterations at which trials are compared, ascending; empty if at none."""
        return self.base.rungs

    @property
    def num_to_keep(self) -> int | None:
        """Return how many checkpoints of a trial Tune has to keep; None for all."""
        return self.base.num_to_keep

    @property
    def needed_checkpoints(self) -> frozenset[str]:
        """Return what the scheduler inside may still need."""
        return self.base.needed_checkpoints

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Return what the scheduler inside decides, or PAUSE for a trial that is to be resized."""
        self._take_up(tune_controller)
        decision = super().on_trial_result(tune_controller, trial, result)
        waits = decision == TrialScheduler.PAUSE and trial in self._trials_to_reallocate
        self._resizing.discard(trial.trial_id)
        if waits:
            self._resizing.add(trial.trial_id)
        return decision

    def choose_trial_to_run(self, tune_controller: Any, **options: Any) -> Trial | None:
        """Return the trial to run next: the scheduler inside wakes only what it paused itself."""
        chosen = super().choose_trial_to_run(tune_controller, **options)
        resized = (
            trial
            for trial in tune_controller.get_trials()
            if trial.status == Trial.PAUSED and trial.trial_id in self._resizing
        )
        return chosen or next(resized, None)


class _Shares:
    """Ray's even distribution of free devices, for reservations of one bundle and of several."""

    def __call__(
        self,
        tune_controller: Any,
        trial: Trial,
        result: dict[str, Any],
        scheduler: ResourceChangingScheduler,
    ) -> PlacementGroupFactory | None:
        """Return what a trial is to reserve from now on; None for no change."""
        if type(trial.placement_group_factory) is not PlacementGroupFactory:
            return None  # it ran out of memory once, and makes do with what it has
        base = scheduler.base_trial_resources.bundles
        # What is resized starts anew: a CPU that makes no replica more is not worth that.
        cpus = 0 if base[0].get("GPU") else base[0].get("CPU", 0)
        distribute = DistributeResources(
            add_bundles=len(base) > 1,
            increase_by={"CPU": cpus} if len(base) == 1 and cpus else None,
        )
        wanted = distribute(tune_controller, trial, result, scheduler)
        return wanted and _without_parts_of_cards(wanted)


def _without_parts_of_cards(wanted: PlacementGroupFactory) -> PlacementGroupFactory:
    """Return a reservation that Ray can hold: it adds whole GPUs also to a share of one."""
    gpus = [bundle.get("GPU", 0) for bundle in wanted.bundles]
    if all(count <= 1 or count == int(count) for count in gpus):
        return wanted
    whole = [{**bundle, "GPU": int(bundle["GPU"])} for bundle in wanted.bundles]
    return PlacementGroupFactory(whole, strategy=wanted.strategy)
