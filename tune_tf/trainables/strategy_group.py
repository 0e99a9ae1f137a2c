"""The processes of an asynchronous trial that TensorFlow carries."""

from dataclasses import replace
from typing import Any

import ray

from tune_tf.trainables.asynchronous_group import AsynchronousGroup, GroupWorker
from tune_tf.trainables.parameter_server import UpdateReport
from tune_tf.trainables.strategy_server import Cluster, StrategyServerActor, StrategyWorkerActor
from tune_tf.trainables.worker import EpochReport, TrialStart
from tune_tf.training.peak_memory import with_summed_peak


class StrategyGroup(AsynchronousGroup):
    """A chief, which is the parameter server too, and the workers of its cluster.

    TensorFlow hands a lost worker's work to another one; a fresh process in its place, at the same
    address, is given work again.
    """

    server_actor = StrategyServerActor
    worker_actor = StrategyWorkerActor
    _cluster: Cluster | None = None

    def start(self, trial: TrialStart) -> None:
        """Begin a trial, after ending the one before."""
        self._num_replaced = 0
        self._ask(("start", trial), watched=False)

    def epoch(self) -> tuple[EpochReport, dict[str, Any]]:
        """Train and validate for one epoch; return the report, and more keys for the result."""
        self._num_lost = 0
        self._meanwhile()
        report: UpdateReport = self._ask(("train",))
        # Its workers are TensorFlow's: what they have taken is not known.
        load = with_summed_peak(report.epoch.system_metrics, [{}])
        return replace(report.epoch, system_metrics=load), self._told(report)

    def _connect(self) -> None:
        self._await_workers()
        servers = self._ask(("address",), watched=False)
        self._cluster = {
            "chief": [self._server_facts.address],
            "ps": [servers],
            "worker": [each.facts.address for each in self._workers if each.facts is not None],
        }
        for worker in self._workers:
            worker.answers.append(worker.actor.do.remote("listen", self._cluster))
        self._await_workers()
        self._ask(("connect", self._parallelism.max_staleness, self._cluster), watched=False)
        for worker in self._workers:
            worker.watched = True

    def _instructions(self, number: int) -> list[tuple[Any, ...]]:
        return [] if self._cluster is None else [("listen", self._cluster)]

    def _forget(self, worker: GroupWorker) -> None:
        """TensorFlow finds out by itself."""

    def _meanwhile(self) -> None:
        if self._cluster is None:
            return  # they are waited for
        answered = [w for w in self._workers if w.answers and ray.wait(w.answers[:1], timeout=0)[0]]
        if answered:
            self._heard_of_workers()
        self._feel_pulses()
