"""Retries of trials that ran out of memory, with more memory or smaller micro-batches."""

import logging
from collections import Counter
from typing import Any
from weakref import WeakKeyDictionary

from ray import tune
from ray.tune import PlacementGroupFactory
from ray.tune.experiment import Trial

from tune_tf.outcome import Outcome
from tune_tf.outcome_rules import last_failure
from tune_tf.parallelism import Mirrored, Parallelism
from tune_tf.tune_internals.killed_actors import treat_killed_actors_as_dead
from tune_tf.tune_internals.trial_state import trial_error
from tune_tf.workload import Workload

_log = logging.getLogger(__name__)


class RetryResources(PlacementGroupFactory):
    """Resource request that also carries a trial's number of micro-batches to its process.

    Attributes:
        arguments: Those that make an equal request.
    """

    def __init__(
        self,
        bundles: list[dict[str, float]],
        strategy: str = "PACK",
        *,
        micro_batches: int = 1,
    ) -> None:
        self.arguments = {
            "bundles": bundles,
            "strategy": strategy,
            "micro_batches": micro_batches,
        }
        super().__init__(bundles, strategy)
        self.micro_batches = micro_batches

    def __eq__(self, other: object) -> bool:
        """Compare micro-batches too: an actor cannot be reused for another number of them."""
        micro_batches = getattr(other, "micro_batches", 1)
        return bool(super().__eq__(other)) and micro_batches == self.micro_batches

    def __hash__(self) -> int:
        """Return Ray's hash."""
        return int(super().__hash__())


def increase_memory(
    reserved: PlacementGroupFactory, parallelism: Parallelism, *, in_micro_batches: bool
) -> RetryResources | None:
    """Return the next resource request of a trial that ran out of memory; None if nothing helps.

    A fraction of a GPU is doubled for each process, up to the whole card; any other trial doubles
    its micro-batches, with ``in_micro_batches`` and where they save memory.
    """
    bundles = reserved.bundles
    head: list[dict[str, float]] = [{}] if reserved.head_bundle_is_empty else []
    number = micro_batches_of(reserved, parallelism)
    if 0 < bundles[0].get("GPU", 0) < 1:
        for bundle in bundles:
            if "GPU" in bundle:
                bundle["GPU"] = min(1.0, 2 * bundle["GPU"])
    elif in_micro_batches and parallelism.pieces_save_memory:
        number *= 2
    else:
        return None
    return RetryResources([*head, *bundles], reserved.strategy, micro_batches=number)


def micro_batches_of(reserved: Any, parallelism: Parallelism) -> int:
    """Return the number of micro-batches of a trial with these resources."""
    return max(getattr(reserved, "micro_batches", 1), parallelism.micro_batches)


class OomRetries(tune.Callback):
    """Callback that restarts trials that ran out of memory from their last checkpoint.

    A retried trial gets a larger share of its GPU if it had a fraction of one, else twice as many
    micro-batches at the same global batch size, which give the same gradients. A model in stages is
    not retried: its micro-batches are pipelined and save no memory. Out of memory covers
    TensorFlow's errors and kills by Ray's memory monitor. Retries do not count towards
    ``max_failures``.
    After its last retry a trial fails with the outcome :attr:`tune_tf.outcome.Outcome.OOM`.

    Args:
        workload: Workload of the trials.
        parallelism: Declared parallelism.
        loop: Loop of the trials; only ``"graph"`` supports micro-batches.
        oom_retries: Retries per trial.
    """

    def __init__(
        self,
        workload: Workload | type[Workload],
        parallelism: Parallelism = Mirrored(),  # noqa: B008  frozen
        *,
        loop: str = "graph",
        oom_retries: int = 2,
    ) -> None:
        kind = workload if isinstance(workload, type) else type(workload)
        self._parallelism = parallelism
        self._supports_micro_batches = loop == "graph" and kind.train_step is Workload.train_step
        self._oom_retries = oom_retries
        self._granted: dict[str, RetryResources] = {}
        self._num_retries = Counter[str]()  # of each trial

    def setup(self, **info: Any) -> None:
        """Make Tune treat actors killed by Ray's memory monitor as dead."""
        treat_killed_actors_as_dead()

    def on_trial_start(self, trial: Trial, **info: Any) -> None:
        """Register for the trial's failures."""
        if type(trial) is Trial:
            trial.__class__ = _RetriedTrial
        _RETRIES[trial] = self

    def on_trial_recover(self, trial: Trial, **info: Any) -> None:
        """Apply the granted resources to a restarted trial."""
        request = self._granted.pop(trial.trial_id, None)
        if request is None:
            return
        previous = trial.placement_group_factory
        trial.update_resources(request)
        if request.bundles != previous.bundles:
            old, new = previous.bundles[0]["GPU"], request.bundles[0]["GPU"]
            change = f"{new:g} of a GPU instead of {old:g}"
        else:
            change = f"{request.micro_batches} micro-batches at an equal global batch"
        _log.warning("trial %s ran out of memory; restarting with %s", trial, change)

    def grant(self, trial: Trial) -> bool:
        """Return whether to retry a failed trial because it ran out of memory."""
        is_oom = Outcome.of_error(last_failure(trial_error(trial))) is Outcome.OOM
        if not is_oom or self._num_retries[trial.trial_id] >= self._oom_retries:
            return False
        request = increase_memory(
            trial.placement_group_factory,
            self._parallelism,
            in_micro_batches=self._supports_micro_batches,
        )
        if request is None:
            return False
        self._granted[trial.trial_id] = request
        self._num_retries[trial.trial_id] += 1
        return True


class _RetriedTrial(Trial):
    """Trial that consults :class:`OomRetries` before Tune restarts it.

    Tune asks only the trial, which counts failures of any kind. This relies on Tune calling
    ``Trial.should_recover``; otherwise ``max_failures`` alone would apply.
    """

    def should_recover(self) -> bool:
        """Return whether Tune starts the trial again."""
        retries = _RETRIES.get(self)
        if retries is not None and retries.grant(self):
            # A failure during a restore may not have been counted.
            self.run_metadata.num_failures = max(0, self.run_metadata.num_failures - 1)
            return True
        return bool(super().should_recover())


_RETRIES: "WeakKeyDictionary[Trial, OomRetries]" = WeakKeyDictionary()
