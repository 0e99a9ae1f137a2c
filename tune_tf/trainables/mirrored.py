"""A trial on the devices of one node."""

import hashlib
import math
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ray import tune
from ray.tune.result import DONE, SHOULD_CHECKPOINT

from tune_tf.outcome import STOP_CAUSE, STOP_REASON, Outcome
from tune_tf.parallelism import Mirrored
from tune_tf.resources import TrialResources
from tune_tf.trainables.recycling import RECYCLE, Recycling
from tune_tf.workload import Config, Workload

if TYPE_CHECKING:
    from tune_tf.training.loop import Loop

LoopKind = Literal["graph", "fit"]

_NUMBER = re.compile(r"_(\d{5,7})$")  # a searcher's id of eight digits is no number of a trial


class MirroredTrainable(tune.Trainable):
    """Trains one model on the devices of one node, an epoch an iteration.

    Made ready for ``tune.run`` by :func:`tune_tf.trainable`, which hands over what :meth:`setup`
    takes. An actor that is reused for another trial keeps its traced programs and its data.
    """

    def setup(
        self,
        config: Config,
        *,
        workload: Workload,
        parallelism: Mirrored,
        resources: TrialResources,
        loop: LoopKind = "graph",
        seed: int | None = None,
        checkpoint_interval_s: float | None = None,
        recycling: Recycling | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Claim the devices of this process and begin the first trial.

        Args:
            config: The trial's values.
            workload: Its data and model.
            parallelism: How it is spread.
            resources: What it may use where no Ray cluster has reserved anything.
            loop: ``"graph"`` for epochs as one graph call, ``"fit"`` for ``keras.Model.fit``.
            seed: The sweep's seed; None draws one from the trial's id.
            checkpoint_interval_s: Seconds of training after which an iteration asks Tune for a
                checkpoint; None leaves it to Tune's ``CheckpointConfig``.
            recycling: When this process has traced too much to serve another trial.
            clock: Seconds that only grow.
        """
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        import keras

        from tune_tf.data import LoadCache, rows_of
        from tune_tf.training.devices import claim_devices  # TensorFlow loads in the trial only
        from tune_tf.training.placed import place
        from tune_tf.training.replicas import Replicas

        def load(config: Config) -> Any:
            data = workload.load_data(config)
            if loop == "fit":
                return data
            return place(rows_of(data, floatx=keras.config.floatx()), self._replicas)

        self._sweep_seed = seed
        self._checkpoint_interval_s = checkpoint_interval_s
        self._recycling = recycling or Recycling()
        self._clock = clock
        devices = claim_devices(self._reserved() or resources, parallelism.num_replicas)
        self._replicas = Replicas(devices)
        self._loop = _make_loop(loop, workload, self._replicas, parallelism)
        self._data = LoadCache(load)
        self._start(config)

    def step(self) -> dict[str, Any]:
        """Train and validate for one epoch; return its metrics."""
        metrics = {name: value for name, value in self._loop.epoch().items() if _is_metric(value)}
        result: dict[str, Any] = dict(metrics)
        if not math.isfinite(metrics.get("loss", 0.0)):
            cause = f"loss is {metrics['loss']} at iteration {self.iteration + 1}"
            result |= {DONE: True, STOP_REASON: Outcome.DIVERGED.value, STOP_CAUSE: cause}
        elif self._loop.stop_training:
            result |= {DONE: True, STOP_REASON: Outcome.COMPLETED.value}
        interval = self._checkpoint_interval_s
        if interval is not None and self._clock() - self._last_checkpoint >= interval:
            result[SHOULD_CHECKPOINT] = True
        if self._recycling.is_due(self._loop.num_programs):
            result[RECYCLE] = True
        return result

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write everything needed to go on into a folder."""
        self._loop.state().write(Path(checkpoint_dir))
        self._last_checkpoint = self._clock()

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Go on from a folder that :meth:`save_checkpoint` wrote, on any number of replicas."""
        from tune_tf.training.checkpoint import Checkpoint

        self._loop.restore(Checkpoint.read(Path(checkpoint)))
        self._last_checkpoint = self._clock()

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Begin another trial in this process, with the numbers that a fresh one would give."""
        self._loop.finish()
        self._start(new_config)
        return True

    def cleanup(self) -> None:
        """End the trial."""
        self._loop.finish()

    def _start(self, config: Config) -> None:
        self._last_checkpoint = self._clock()
        self._loop.start(config, self._data.get(config), self._seed())

    def _reserved(self) -> TrialResources | None:
        """Return what Tune reserved for this actor; None where it is driven by hand."""
        if self.trial_resources is None:
            return None
        reserved = self.trial_resources.required_resources
        return TrialResources(cpus=max(1, int(reserved.get("CPU", 1))), gpus=reserved.get("GPU", 0))

    def _seed(self) -> int:
        """Return the trial's seed, from the sweep's and the number at the end of its name or id.

        Tune's own ids end in a number; names that :func:`tune_tf.run_sweep` gives do too. Without
        a number all trials of a sweep start from the same seed.
        """
        from tune_tf.training.seeds import trial_seed

        if self._sweep_seed is None:
            digest = hashlib.sha256(self.trial_id.encode()).digest()
            return int.from_bytes(digest[:4], "big")
        match = _NUMBER.search(self.trial_name) or _NUMBER.search(self.trial_id)
        return trial_seed(self._sweep_seed, int(match[1]) if match else 0)


def _make_loop(kind: LoopKind, workload: Workload, replicas: Any, spread: Mirrored) -> "Loop":
    if kind == "fit":
        from tune_tf.training.fit import FitLoop

        return FitLoop(workload, replicas)
    from tune_tf.training.loop import GraphLoop

    return GraphLoop(workload, replicas, spread)


def _is_metric(value: Any) -> bool:
    """Whether Tune can take a value; per-class arrays stay inside the trial."""
    return isinstance(value, int | float)
