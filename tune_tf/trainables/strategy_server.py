"""The chief and parameter server of an asynchronous trial that TensorFlow carries."""

import socket
import time
from typing import TYPE_CHECKING

from tune_tf.errors import WorkerError
from tune_tf.trainables.parameter_server import ParameterServer, UpdateReport
from tune_tf.trainables.worker import Assignment, TrialStart, Worker
from tune_tf.trainables.worker_actor import WorkerActor
from tune_tf.training.meeting import WorkerFacts

if TYPE_CHECKING:
    from tune_tf.training.shared_loop import SharedLoop

Cluster = dict[str, list[str]]
"""Addresses ``host:port`` by job: ``chief``, ``ps``, ``worker``."""


class StrategyServer(ParameterServer):
    """Keeps the weights, and has the workers compute by TensorFlow's ``ClusterCoordinator``.

    The trial itself is an ordinary model here: what is between epochs (callbacks, checkpoints, the
    validation) is of that one. Its values go to the shared model for an epoch and come back.
    """

    _shared: "SharedLoop"

    def meet(self, assignment: Assignment) -> WorkerFacts:
        """As :meth:`Worker.meet`; takes a second port, for the parameter server."""
        facts = super().meet(assignment)
        self._second_port = socket.socket()
        self._second_port.bind(("", 0))
        return facts

    def address(self) -> str:
        """Return ``host:port`` of the parameter server."""
        return f"{self._host}:{self._second_port.getsockname()[1]}"

    def connect(self, max_staleness: int, cluster: Cluster) -> None:
        """Get ready for trials, once the workers listen.

        Args:
            max_staleness: Updates that a gradient may be behind.
            cluster: All addresses.
        """
        from tune_tf.training.replicas import Replicas
        from tune_tf.training.shared_loop import SharedLoop
        from tune_tf.training.strategy_replicas import StrategyReplicas
        from tune_tf.training.update_loop import UpdateLoop

        self._leave_port()
        self._second_port.close()
        self._max_staleness = max_staleness
        self._num_epochs = 0
        shared = StrategyReplicas(self._devices, cluster)
        spread = self._assignment.spread
        self._shared = SharedLoop(self._workload, shared, spread)
        replicas = Replicas(self._devices)
        self._serve(UpdateLoop(self._workload, replicas, spread), replicas)

    def start(self, trial: TrialStart) -> None:
        """Begin a trial, after ending the one before."""
        super().start(trial)
        self._shared.finish()
        self._shared.start(trial.config, self._data.get(trial.config), trial.seed)

    def train(self) -> UpdateReport:
        """Train and validate for one epoch."""
        self._enter()
        loop, shared = self._loop, self._shared.program
        loop.open_epoch()
        self._num_epochs += 1
        shared.begin(self._num_epochs, loop.program.model, self._max_staleness)
        begun = time.monotonic()
        batches = [loop.rows_of(number) for number in range(loop.program.num_batches)]
        self._shared.train(batches, self._num_epochs)
        took_s = time.monotonic() - begun
        statistics = shared.end(loop.program.model)
        metrics = loop.close_epoch(shared.increments)
        return UpdateReport(self._report(metrics), statistics, len(batches) / took_s)


class StrategyServerActor(WorkerActor):
    """A chief's process."""

    worker_class = StrategyServer
    title = "the parameter server"


class StrategyWorker(Worker):
    """A process in which TensorFlow computes what a chief asks for."""

    def listen(self, cluster: Cluster) -> None:
        """Start TensorFlow's server of this worker.

        Raises:
            WorkerError: This process is not where the cluster expects it.
        """
        from tune_tf.training.strategy_replicas import start_server

        host = cluster["worker"][self._rank].rpartition(":")[0]
        if host != self._host:
            raise WorkerError(
                f"{self} takes the place of one on {host}, and TensorFlow's cluster cannot move a "
                "worker to another node: the trial starts again from its checkpoint"
            )
        self._leave_port()
        cpus = self._assignment.resources.cpus
        self._server = start_server(cluster, "worker", self._rank, num_threads=cpus)


class StrategyWorkerActor(WorkerActor):
    """A worker's process."""

    worker_class = StrategyWorker
