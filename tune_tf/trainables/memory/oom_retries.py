"""Retries of trials that ran out of memory, with more memory or smaller micro-batches."""

import logging
import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from ray import tune
from ray.exceptions import RayActorError
from ray.tune.experiment import Trial

from tune_tf.errors import InvalidSettingsError, WorkerLostError
from tune_tf.outcome import Outcome
from tune_tf.outcome_rules import last_failure
from tune_tf.parallelism import Mirrored, Parallelism
from tune_tf.tracking.outcome_tracker import trial_error
from tune_tf.trainables.memory.kernel_kills import KernelKills
from tune_tf.trainables.memory.memory_saving import (
    MemorySaving,
    num_retries_of,
    with_more_memory,
)
from tune_tf.tune_internals.killed_actors import treat_killed_actors_as_dead
from tune_tf.workload import Workload

_KILLED = "OutOfMemoryError: the kernel killed the trial's process for lack of memory"
_log = logging.getLogger(__name__)


class OomRetries(tune.Callback):
    """Callback that restarts trials that ran out of memory from their last checkpoint.

    A retried trial gets a larger share of its GPU if it had a fraction of one, else twice as many
    micro-batches at the same global batch size, which give the same gradients. Out of memory covers
    TensorFlow's errors and kills by Ray's memory monitor and by the kernel.

    Retries do not count towards ``max_failures``. After its last retry a trial fails with the
    outcome :attr:`tune_tf.outcome.Outcome.OOM`.

    Args:
        workload: Workload of the trials.
        parallelism: Declared parallelism.
        loop: Loop of the trials; only ``"graph"`` supports micro-batches.
        oom_retries: Retries per trial, a whole number of at least 0.

    Raises:
        InvalidSettingsError: ``oom_retries`` is not allowed.
    """

    def __init__(
        self,
        workload: Workload | type[Workload],
        parallelism: Parallelism = Mirrored(),  # noqa: B008  frozen
        *,
        loop: str = "graph",
        oom_retries: int = 2,
    ) -> None:
        if isinstance(oom_retries, bool) or not isinstance(oom_retries, int) or oom_retries < 0:
            raise InvalidSettingsError(
                [f"oom_retries must be an integer of at least 0, not {oom_retries!r}"]
            )
        kind = workload if isinstance(workload, type) else type(workload)
        own_step = kind.train_step is not Workload.train_step
        self._parallelism = parallelism
        self._in_pieces = loop == "graph" and not own_step
        self._oom_retries = oom_retries
        self._kills = KernelKills()
        self._granted: dict[str, MemorySaving] = {}

    def setup(self, **info: Any) -> None:
        """Make Tune treat actors killed by Ray's memory monitor as dead."""
        treat_killed_actors_as_dead()

    def on_trial_start(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """Register for the trial's failures."""
        self._kills.look()
        if type(trial) is Trial:
            trial.__class__ = _RetriedTrial
        _RETRIES[trial] = self

    def on_trial_recover(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """Apply the granted resources to a restarted trial."""
        more = self._granted.pop(trial.trial_id, None)
        if more is None:
            return
        had = trial.placement_group_factory
        trial.update_resources(more)
        if more.bundles != had.bundles:
            how = f"{more.bundles[0]['GPU']:g} of a GPU instead of {had.bundles[0]['GPU']:g}"
        else:
            how = f"{more.micro_batches} micro-batches at an equal global batch"
        _log.warning(
            "trial %s ran out of memory; restarting %s with %s (retry %d of %d)",
            trial,
            "from its last checkpoint" if trial.checkpoint else "from the beginning",
            how,
            more.num_retries,
            self._oom_retries,
        )

    def grant(self, trial: Trial) -> bool:
        """Return whether to retry a failed trial because it ran out of memory."""
        had = trial.placement_group_factory
        if not self._ran_out_of_memory(trial) or num_retries_of(had) >= self._oom_retries:
            return False
        more = with_more_memory(had, self._parallelism, in_pieces=self._in_pieces)
        if more is not None:
            self._granted[trial.trial_id] = more
        return more is not None

    def _ran_out_of_memory(self, trial: Trial) -> bool:
        error = last_failure(trial_error(trial))
        if Outcome.of_error(error) is Outcome.OOM:
            return True
        died = WorkerLostError.__name__ in error or _process_died(trial)
        if not (died and self._kills.have_risen()):
            return False
        with suppress(OSError), Path(trial.error_file).open("a") as file:
            file.write(f"{_KILLED}\n")
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


def _process_died(trial: Trial) -> bool:
    """Return whether a trial's last recorded failure was the death of its process."""
    try:
        # Tune's reader looks in the sweep's storage, which the file reaches later.
        error = pickle.loads(Path(trial.pickled_error_file).read_bytes())  # noqa: S301 - Tune's
    except Exception:  # noqa: BLE001 - errors of user code may not unpickle here
        return False
    return isinstance(error, RayActorError)


_RETRIES: "WeakKeyDictionary[Trial, OomRetries]" = WeakKeyDictionary()
