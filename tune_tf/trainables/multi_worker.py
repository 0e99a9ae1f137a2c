"""Trainable for one model in several synchronous processes, on one or more nodes."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import ray
from ray import tune
from ray.tune.experiment import Trial

from tune_tf.errors import UnavailableResourcesError, WorkerLostError
from tune_tf.parallelism import Parallelism
from tune_tf.resources import TrialResources
from tune_tf.trainables.capacity import capacity_by_node, most_workers
from tune_tf.trainables.multi_process.process_trainable import (
    ProcessGroup,
    SingleModelTrainable,
)
from tune_tf.trainables.multi_process.processes import Bundles, RemoteProcess
from tune_tf.trainables.multi_process.worker import (
    Files,
    RemoteTrialProcess,
    Worker,
    WorkerAssignment,
)
from tune_tf.trainables.trial_process import EpochReport, TrialStart
from tune_tf.training.peak_memory import sum_peak_memory
from tune_tf.training.rendezvous import PortTakenError, compatible_addresses

_log = logging.getLogger(__name__)

_MEETINGS = 3


class WorkerGroup(ProcessGroup):
    """Group of workers, one per bundle, that run the same calls together.

    The first failure ends all workers, because the others would wait forever.
    """

    def __init__(
        self,
        assignment: WorkerAssignment,
        bundles: Bundles,
        worker_class: type[RemoteTrialProcess] = Worker,
    ) -> None:
        super().__init__(assignment, bundles)
        self._worker_class = worker_class
        self._workers: list[RemoteProcess] = []
        self._meet()

    def ask(
        self,
        method: str,
        *arguments: Any,
        watched: bool = True,
        timeout_s: float | None = None,
    ) -> list[Any]:
        """Call a method of all workers concurrently; return the results by rank.

        Args:
            method: Method of :class:`tune_tf.trainables.multi_process.worker.Worker`.
            arguments: Arguments, equal for all workers.
            watched: Whether silence counts as a failure. Set it to False while workers load modules
                or data, when they may not respond for long.
            timeout_s: Seconds for the whole call; None to wait while the workers are alive.

        Raises:
            TuneTfError: Error of the first worker that failed; all workers have ended.
        """
        if not self._workers:
            raise WorkerLostError("the workers of this trial have ended")
        answers = [worker.call(method, *arguments) for worker in self._workers]
        for worker in self._workers:
            worker.watch(watched)
        try:
            self._await(answers, timeout_s)
            return list(ray.get(answers))
        except BaseException as error:  # noqa: BLE001  raised again there
            self._fail(error, self._workers)

    def start(self, trial: TrialStart) -> None:
        """Begin a trial, after ending the previous one."""
        self.ask("start", trial, watched=False)

    def epoch(self) -> tuple[EpochReport, dict[str, Any]]:
        """Train and validate for one epoch; return the report and further result keys."""
        reports: list[EpochReport] = self.ask("epoch")
        recycle = any(each.recycle for each in reports)
        load = sum_peak_memory(reports[0].system_metrics, [each.system_metrics for each in reports])
        report = replace(reports[0], recycle=recycle, system_metrics=load)
        return report, {"num_workers": len(reports)}

    def state(self) -> Files:
        """Return the trial's checkpoint."""
        files: Files = self.ask("state")[0]
        return files

    def restore(self, files: Any) -> None:
        """Restore a checkpoint from a Ray reference to its files."""
        self.ask("restore", files)

    def end(self, *, finish: bool = False) -> None:
        """End all processes; with ``finish``, call the trial's callbacks first."""
        workers, self._workers = self._workers, []
        self._bundles.end(workers, [each.call("finish") for each in workers] if finish else [])

    def _meet(self) -> None:
        """Start and connect the workers; retry with new ports if one was taken."""
        for attempt in range(1, _MEETINGS + 1):
            self._workers = [
                self._bundles.start(self._worker_class, rank)
                for rank in range(len(self._bundles.shares))
            ]
            workers = self.ask("meet", self._assignment, watched=False)
            try:
                addresses = compatible_addresses(workers)
            except UnavailableResourcesError:
                self.end()
                raise
            self.devices = "; ".join(f"{worker.devices} on {worker.node}" for worker in workers)
            try:
                self.ask("join", addresses, timeout_s=self._bundles.watch.join_s)
            except PortTakenError as error:
                if attempt == _MEETINGS:
                    raise
                _log.warning("%s; the workers restart on other ports", error)
            else:
                return

    def _await(self, answers: Sequence[Any], timeout_s: float | None) -> None:
        """Wait for all replies; raise the first error, or an error on silence or timeout."""
        asked = self._bundles.clock()
        waiting = list(answers)
        while waiting:
            done, waiting = ray.wait(waiting, timeout=self._bundles.watch.ping_interval_s)
            ray.get(done)
            if done:
                continue
            if timeout_s is not None and self._bundles.clock() - asked > timeout_s:
                raise WorkerLostError(
                    f"the workers did not connect within {timeout_s:g} s: check that their nodes "
                    "can reach each other on any port"
                )
            for worker in self._workers:
                if (loss := worker.loss()) is not None:
                    raise loss


class MultiWorkerTrainable(SingleModelTrainable):
    """Trainable for one model in several processes that train synchronously on parts of a batch."""

    def start_processes(self, assignment: WorkerAssignment, bundles: Bundles) -> None:
        """Start a worker in each bundle."""
        self._processes = WorkerGroup(assignment, bundles)


class FewerWorkers(tune.Callback):
    """Callback that shrinks a failed trial to the live nodes, where its restore would wait forever.

    ``min_workers`` is the lower limit. The global batch size and the trial's numbers stay the same.
    A later restore grows the trial again as far as the nodes allow.
    """

    def __init__(self, parallelism: Parallelism) -> None:
        self._parallelism = parallelism

    def on_trial_recover(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """Fit a recovering trial to the live nodes."""
        reserved = trial.placement_group_factory
        bundles = [bundle for bundle in reserved.bundles if bundle]
        share = TrialResources(int(bundles[0].get("CPU", 1)), bundles[0].get("GPU", 0))
        least = self._parallelism.min_workers or self._parallelism.num_workers
        capacity = capacity_by_node(share, answering=True)
        num_workers = max(most_workers(capacity, self._parallelism), least)
        if num_workers == len(bundles):
            return
        _log.warning(
            "trial %s continues with %d workers instead of %d", trial, num_workers, len(bundles)
        )
        trial.update_resources(
            tune.PlacementGroupFactory([{}, *[share.bundle] * num_workers], reserved.strategy)
        )


def fewer_workers(parallelism: Parallelism) -> list[FewerWorkers]:
    """Return the callback if the parallelism sets ``min_workers``, else none."""
    return [] if parallelism.min_workers is None else [FewerWorkers(parallelism)]
