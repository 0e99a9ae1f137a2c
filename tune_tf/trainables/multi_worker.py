"""A trial in several processes, which may be on several nodes."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ray
from ray import tune
from ray.tune.result import SHOULD_CHECKPOINT

from tune_tf.parallelism import MultiWorker
from tune_tf.resources import TrialResources
from tune_tf.tracking.trial_tracking import TrialTracking
from tune_tf.trainables.bundles import Bundles
from tune_tf.trainables.epoch_result import epoch_result
from tune_tf.trainables.files import read_files, write_files
from tune_tf.trainables.memory_saving import micro_batches_of
from tune_tf.trainables.recycling import RECYCLE, Recycling
from tune_tf.trainables.trial_number import seed_of_trial
from tune_tf.trainables.worker import Assignment, EpochReport, PickledWorkload, TrialStart
from tune_tf.trainables.worker_group import Watch, WorkerGroup
from tune_tf.workload import Config

NUM_WORKERS = "num_workers"
"""Key of a result that holds how many workers trained the iteration."""


class MultiWorkerTrainable(tune.Trainable):
    """Trains one model in several processes, an epoch an iteration.

    It asks its workers and stays free of TensorFlow, so that a crash of one leaves it alive to end
    the others. The workers serve one trial after another where Tune reuses this actor.

    Driven by hand it needs a Ray cluster, and reserves there what Tune would reserve for it.
    """

    def setup(
        self,
        config: Config,
        *,
        workload: PickledWorkload,
        parallelism: MultiWorker,
        resources: TrialResources,
        seed: int | None = None,
        checkpoint_interval_s: float | None = None,
        recycling: Recycling | None = None,
        tracking: TrialTracking | None = None,
        watch: Watch = Watch(),  # noqa: B008  frozen
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start the workers and begin the first trial.

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
        self._bundles = Bundles(self.trial_resources, parallelism, resources)
        shares = self._bundles.shares
        self._num_workers = len(shares)
        try:
            self._workers = WorkerGroup(
                Assignment(
                    workload,
                    shares[0],
                    replace(parallelism.in_a_worker, micro_batches=self._micro_batches),
                    tracking,
                    recycling or Recycling(),
                ),
                num_workers=len(shares),
                placement_group=self._bundles.placement_group,
                watch=watch,
            )
            self._start(config)
        except BaseException:
            self._bundles.give_back()
            raise

    def step(self) -> dict[str, Any]:
        """Train and validate for one epoch; return its metrics."""
        reports: list[EpochReport] = self._workers.ask("epoch")
        report = reports[0]
        result = epoch_result(
            report.metrics,
            iteration=self.iteration + 1,
            stop_training=report.stop_training,
            devices=self._workers.devices,
        )
        result[NUM_WORKERS] = self._num_workers
        if self._saving:
            result["micro_batches"] = self._micro_batches
        interval = self._checkpoint_interval_s
        if interval is not None and self._clock() - self._last_checkpoint >= interval:
            result[SHOULD_CHECKPOINT] = True
        if any(each.recycle for each in reports):
            result[RECYCLE] = True
        return result | report.system_metrics

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write everything needed to go on into a folder of this node."""
        write_files(checkpoint_dir, self._workers.ask("state")[0])
        self._last_checkpoint = self._clock()

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Go on from a folder that any Trainable of tune_tf wrote, with any number of replicas."""
        self._workers.ask("restore", ray.put(read_files(checkpoint)))
        self._last_checkpoint = self._clock()

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Begin another trial in these workers, with the numbers that fresh ones would give."""
        self._start(new_config)
        return True

    def cleanup(self) -> None:
        """End the trial and its workers."""
        self._workers.end(finish=True)
        self._bundles.give_back()

    def _start(self, config: Config) -> None:
        self._last_checkpoint = self._clock()
        seed = seed_of_trial(self._sweep_seed, self.trial_id, self.trial_name)
        start = TrialStart(self.trial_id, dict(config), seed)
        self._workers.ask("start", start, watched=False)
