"""Retries of trials that ran out of memory, with more memory or smaller micro-batches."""

import logging
import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import ray
from ray import tune
from ray.exceptions import GetTimeoutError, RayActorError, RayError
from ray.tune.experiment import Trial
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tune_tf.errors import InvalidSettingsError, WorkerLostError
from tune_tf.outcome import Outcome
from tune_tf.outcome_rules import last_failure
from tune_tf.parallelism import Mirrored, Parallelism
from tune_tf.trainables.memory.retry_resources import RetryResources, increase_memory
from tune_tf.tune_internals.killed_actors import treat_killed_actors_as_dead
from tune_tf.tune_internals.trial_state import trial_error
from tune_tf.workload import Workload

_KILLED = "OutOfMemoryError: the kernel killed the trial's process for lack of memory"
_log = logging.getLogger(__name__)

# Ray only reports that a process died; Linux counts its out-of-memory kills.
_VMSTAT = Path("/proc/vmstat")
_TIMEOUT_S = 10.0


def num_kernel_kills() -> int:
    """Return the out-of-memory kills of this machine's kernel; 0 if it does not report them."""
    try:
        counters = dict(line.split() for line in _VMSTAT.read_text().splitlines())
    except OSError:
        return 0
    return int(counters.get("oom_kill", 0))


class KernelKills:
    """Counter of new out-of-memory kills on the cluster's nodes.

    It reads the driver's count directly and other nodes' by one task each, whose result is awaited
    only after a process has died.
    """

    def __init__(self) -> None:
        self._local_count = num_kernel_kills()
        self._counts: dict[str, Any] = {}  # by other node, a number or a reference to the first one

    def request_counts(self) -> None:
        """Request the counts of new nodes, without waiting."""
        for node_id in _other_nodes() - set(self._counts):
            self._counts[node_id] = _request_count(node_id)

    def have_risen(self) -> bool:
        """Return whether a count has risen since the last call, among the nodes that respond."""
        local_count, self._local_count = self._local_count, num_kernel_kills()
        risen = self._local_count > local_count
        for node_id in _other_nodes():
            previous = self._counts.get(node_id)
            if previous is not None and not isinstance(previous, int):
                previous = _wait_for_count(previous)
            count = _wait_for_count(_request_count(node_id))
            if count is not None:
                risen |= previous is not None and count > previous
                self._counts[node_id] = count
        return risen


def _other_nodes() -> set[str]:
    """Return the ids of all live nodes except the driver's."""
    if not ray.is_initialized():
        return set()
    driver_node = ray.get_runtime_context().get_node_id()
    return {node["NodeID"] for node in ray.nodes() if node["Alive"]} - {driver_node}


def _request_count(node_id: str) -> "ray.ObjectRef":
    strategy = NodeAffinitySchedulingStrategy(node_id, soft=False)
    task = ray.remote(num_cpus=0, max_retries=0)(num_kernel_kills)
    return task.options(scheduling_strategy=strategy).remote()


def _wait_for_count(reference: "ray.ObjectRef") -> int | None:
    """Return a node's count; None without a response, which says nothing about kills."""
    try:
        return int(ray.get(reference, timeout=_TIMEOUT_S))
    except (RayError, GetTimeoutError):
        return None


class OomRetries(tune.Callback):
    """Callback that restarts trials that ran out of memory from their last checkpoint.

    A retried trial gets a larger share of its GPU if it had a fraction of one, else twice as many
    micro-batches at the same global batch size, which give the same gradients. The micro-batches of
    a model in stages are then no longer pipelined. Out of memory covers TensorFlow's errors and
    kills by Ray's memory monitor and by the kernel. Retries do not count towards ``max_failures``.
    After its last retry a trial fails with the outcome :attr:`tune_tf.outcome.Outcome.OOM`.

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
        self._parallelism = parallelism
        self._supports_micro_batches = loop == "graph" and kind.train_step is Workload.train_step
        self._oom_retries = oom_retries
        self._kills = KernelKills()
        self._granted: dict[str, RetryResources] = {}

    def setup(self, **info: Any) -> None:
        """Make Tune treat actors killed by Ray's memory monitor as dead."""
        treat_killed_actors_as_dead()

    def on_trial_start(self, trial: Trial, **info: Any) -> None:
        """Register for the trial's failures."""
        self._kills.request_counts()
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
        _log.warning(
            "trial %s ran out of memory; restarting %s with %s (retry %d of %d)",
            trial,
            "from its last checkpoint" if trial.checkpoint else "from the beginning",
            change,
            request.num_retries,
            self._oom_retries,
        )

    def grant(self, trial: Trial) -> bool:
        """Return whether to retry a failed trial because it ran out of memory."""
        reserved = trial.placement_group_factory
        num_retries = getattr(reserved, "num_retries", 0)
        if not self._ran_out_of_memory(trial) or num_retries >= self._oom_retries:
            return False
        request = increase_memory(
            reserved, self._parallelism, in_micro_batches=self._supports_micro_batches
        )
        if request is not None:
            self._granted[trial.trial_id] = request
        return request is not None

    def _ran_out_of_memory(self, trial: Trial) -> bool:
        error = last_failure(trial_error(trial))
        if Outcome.of_error(error) is Outcome.OOM:
            return True
        is_death = WorkerLostError.__name__ in error or _process_died(trial)
        if not (is_death and self._kills.have_risen()):
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
