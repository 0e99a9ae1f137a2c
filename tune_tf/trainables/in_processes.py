"""What trials that train in processes of their own have in common."""

import abc
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import ray
from ray import tune
from ray.tune.result import SHOULD_CHECKPOINT
from ray.util.placement_group import PlacementGroup

from tune_tf.errors import CheckpointError, UnavailableResourcesError
from tune_tf.resources import TrialResources
from tune_tf.tracking.trial_tracking import TrialTracking
from tune_tf.trainables.epoch_result import epoch_result
from tune_tf.trainables.memory_saving import micro_batches_of
from tune_tf.trainables.pulses import Watch
from tune_tf.trainables.recycling import RECYCLE, Recycling
from tune_tf.trainables.trial_number import seed_of_trial
from tune_tf.trainables.worker import Assignment, EpochReport, Files, PickledWorkload, TrialStart
from tune_tf.workload import Config

_RESERVATION_S = 60


class Processes(Protocol):
    """The processes in which a trial trains."""

    @property
    def devices(self) -> str:
        """What they train on, for reports."""

    def start(self, trial: TrialStart) -> None:
        """Begin a trial, after ending the one before."""

    def epoch(self) -> tuple[EpochReport, dict[str, Any]]:
        """Train and validate for one epoch; return the report, and more keys for the result."""

    def state(self) -> Files:
        """Return the trial's checkpoint."""

    def restore(self, files: Any) -> None:
        """Go on from a checkpoint: a reference of Ray's to :data:`Files`."""

    def end(self, *, finish: bool = False) -> None:
        """End all processes, after the trial if told to ``finish``."""


class InProcesses(tune.Trainable, abc.ABC):
    """Trains one model in processes of their own, an epoch an iteration.

    It asks them and stays free of TensorFlow, so that a crash of one leaves it alive to deal with
    the others. The processes serve one trial after another where Tune reuses this actor.

    Driven by hand it needs a Ray cluster, and reserves there what Tune would reserve for it.
    """

    @abc.abstractmethod
    def make_processes(
        self,
        assignment: Assignment,
        shares: Sequence[TrialResources],
        placement_group: PlacementGroup,
        watch: Watch,
    ) -> Processes:
        """Start the processes of this kind.

        Args:
            assignment: What a worker does.
            shares: What is reserved, by bundle of the placement group.
            placement_group: Where they live.
            watch: When one counts as lost.
        """

    def setup(
        self,
        config: Config,
        *,
        workload: PickledWorkload,
        parallelism: Any,
        resources: TrialResources,
        seed: int | None = None,
        checkpoint_interval_s: float | None = None,
        recycling: Recycling | None = None,
        tracking: TrialTracking | None = None,
        watch: Watch = Watch(),  # noqa: B008  frozen
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start the processes and begin the first trial.

        Args:
            config: The trial's values.
            workload: Its data and model.
            parallelism: How it is spread.
            resources: What all workers together may use, where Tune has reserved nothing.
            seed: The sweep's seed; None draws one from the trial's id.
            checkpoint_interval_s: Seconds of training after which an iteration asks Tune for a
                checkpoint; None leaves it to Tune's ``CheckpointConfig``.
            recycling: When the workers have traced too much to serve another trial.
            tracking: Where the trial's MLflow run is, for :func:`tune_tf.mlflow_run`; None if it
                has none.
            watch: When a worker counts as lost.
            clock: Seconds that only grow.

        Raises:
            UnavailableResourcesError: There is no Ray cluster, or no room on it.
        """
        self._sweep_seed = seed
        self._checkpoint_interval_s = checkpoint_interval_s
        self._clock = clock
        self._micro_batches = micro_batches_of(self.trial_resources, parallelism)
        self._saving = self._micro_batches > parallelism.micro_batches  # it ran out of memory
        shares = self._reserved() or parallelism.shares(resources)
        self._parallelism = parallelism
        self._own_reservation: PlacementGroup | None = None
        try:
            self._processes = self.make_processes(
                Assignment(
                    workload,
                    shares[0],
                    replace(parallelism.in_a_worker, micro_batches=self._micro_batches),
                    tracking,
                    recycling or Recycling(),
                ),
                shares,
                self._reservation(shares, parallelism),
                watch,
            )
            self._start(config)
        except BaseException:
            self._give_back()
            raise

    def step(self) -> dict[str, Any]:
        """Train and validate for one epoch; return its metrics."""
        report, more = self._processes.epoch()
        result = epoch_result(
            report.metrics,
            iteration=self.iteration + 1,
            stop_training=report.stop_training,
            devices=self._processes.devices,
        )
        if self._saving:
            result["micro_batches"] = self._micro_batches
        interval = self._checkpoint_interval_s
        if interval is not None and self._clock() - self._last_checkpoint >= interval:
            result[SHOULD_CHECKPOINT] = True
        if report.recycle:
            result[RECYCLE] = True
        return result | more | report.system_metrics

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write everything needed to go on into a folder of this node."""
        for name, content in self._processes.state().items():
            partial = Path(checkpoint_dir, f".{name}.{os.getpid()}")
            partial.write_bytes(content)
            partial.replace(Path(checkpoint_dir, name))
        self._last_checkpoint = self._clock()

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Go on from a folder that any Trainable of tune_tf wrote, with any number of replicas."""
        try:
            files = {
                path.name: path.read_bytes()
                for path in Path(checkpoint).iterdir()
                if path.is_file() and not path.name.startswith(".")
            }
        except FileNotFoundError:
            raise CheckpointError(f"there is no checkpoint at {checkpoint}") from None
        self._processes.restore(ray.put(files))
        self._last_checkpoint = self._clock()

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Begin another trial in these processes, with the numbers that fresh ones would give."""
        self._start(new_config)
        return True

    def cleanup(self) -> None:
        """End the trial and its processes."""
        self._processes.end(finish=True)
        self._give_back()

    def _start(self, config: Config) -> None:
        self._last_checkpoint = self._clock()
        seed = seed_of_trial(self._sweep_seed, self.trial_id, self.trial_name)
        self._processes.start(TrialStart(self.trial_id, dict(config), seed))

    def _reserved(self) -> list[TrialResources] | None:
        """Return what Tune reserved for each process; None where this is driven by hand."""
        if self.trial_resources is None:
            return None
        return [
            TrialResources(cpus=max(1, int(bundle.get("CPU", 1))), gpus=bundle.get("GPU", 0))
            for bundle in self.trial_resources.bundles
            if bundle
        ]

    def _reservation(self, shares: Sequence[TrialResources], parallelism: Any) -> PlacementGroup:
        """Return the placement group that this actor is in, or one of its own."""
        if not ray.is_initialized():
            raise UnavailableResourcesError(
                "a trial of several workers needs a Ray cluster for its processes: call ray.init()"
            )
        group = ray.util.get_current_placement_group()
        if group is not None:
            return group
        group = self._own_reservation = ray.util.placement_group(
            [share.bundle for share in shares], strategy=parallelism.placement.upper()
        )
        if not group.wait(_RESERVATION_S):
            raise UnavailableResourcesError(
                f"the Ray cluster had no room for {len(shares)} processes, one with {shares[0]}, "
                f"within {_RESERVATION_S} s: ask for less, or add machines"
            )
        return group

    def _give_back(self) -> None:
        if self._own_reservation is not None:
            ray.util.remove_placement_group(self._own_reservation)
            self._own_reservation = None
