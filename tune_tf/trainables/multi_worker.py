"""Trainable for one model in several processes, on one or more nodes."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ray.util.placement_group import PlacementGroup

from tune_tf.resources import TrialResources
from tune_tf.trainables.multi_process.checkpoint_files import Files
from tune_tf.trainables.multi_process.heartbeat import Watch
from tune_tf.trainables.multi_process.process_trainable import SingleModelTrainable
from tune_tf.trainables.multi_process.worker import EpochReport, TrialStart, WorkerAssignment
from tune_tf.trainables.multi_process.worker_group import WorkerGroup
from tune_tf.training.system_metrics import sum_peak_memory

NUM_WORKERS = "num_workers"
"""Result key of the number of workers that trained the iteration."""


class MultiWorkerTrainable(SingleModelTrainable):
    """Trainable for one model in several processes that train synchronously on parts of a batch."""

    def make_processes(
        self,
        assignment: WorkerAssignment,
        shares: Sequence[TrialResources],
        placement_group: PlacementGroup,
        watch: Watch,
    ) -> "_InStep":
        """Start a worker in each bundle."""
        group = WorkerGroup(
            assignment, num_workers=len(shares), placement_group=placement_group, watch=watch
        )
        return _InStep(group, len(shares))


class _InStep:
    def __init__(self, group: WorkerGroup, num_workers: int) -> None:
        self._group = group
        self._num_workers = num_workers
        self.end = group.end

    @property
    def devices(self) -> str:
        return self._group.devices

    def start(self, trial: TrialStart) -> None:
        self._group.ask("start", trial, watched=False)

    def epoch(self) -> tuple[EpochReport, dict[str, Any]]:
        reports: list[EpochReport] = self._group.ask("epoch")
        recycle = any(each.recycle for each in reports)
        load = sum_peak_memory(reports[0].system_metrics, [each.system_metrics for each in reports])
        report = replace(reports[0], recycle=recycle, system_metrics=load)
        return report, {NUM_WORKERS: self._num_workers}

    def state(self) -> Files:
        files: Files = self._group.ask("state")[0]
        return files

    def restore(self, files: Any) -> None:
        self._group.ask("restore", files)
