"""Base class of kinds that train several independent models per trial."""

from dataclasses import dataclass
from typing import ClassVar

from tune_tf.errors import InvalidSettingsError
from tune_tf.parallelism.mirrored import Mirrored
from tune_tf.parallelism.setting_errors import Placement, is_count
from tune_tf.resources import TrialResources


@dataclass(frozen=True, kw_only=True)
class Subtasks:
    """Base class of kinds whose trial consists of several models, each trained on one device.

    Args:
        num_devices: Number of models that train concurrently, each in a separate process with its
            CPUs or GPU. With 1, the models take turns.
        task_retries: Restarts of one model from its latest state after its process dies or raises;
            the trial fails after the last one.
        micro_batches: As in :class:`Mirrored`.

    Attributes:
        subtask: Name of one model in results and messages.
    """

    subtask: ClassVar[str]
    placement: ClassVar[Placement] = "pack"
    num_replicas: ClassVar[int] = 1

    num_devices: int = 1
    task_retries: int = 2
    micro_batches: int = 1

    @property
    def num_subtasks(self) -> int:
        """Number of models of a trial."""
        raise NotImplementedError

    @property
    def num_workers(self) -> int:
        """Number of processes."""
        return self.num_devices

    @property
    def in_a_worker(self) -> Mirrored:
        """Parallelism within a process."""
        return Mirrored(micro_batches=self.micro_batches)

    def setting_errors(self) -> list[str]:
        """Return the errors in the shared settings."""
        errors = [
            f"{name} must be an integer of at least 1, not {value!r}"
            for name in ("num_devices", "micro_batches")
            if not is_count(value := getattr(self, name))
        ]
        if self.task_retries != 0 and not is_count(self.task_retries):
            errors.append(
                f"task_retries must be an integer of at least 0, not {self.task_retries!r}"
            )
        return errors

    def refuse(self, errors: list[str]) -> None:
        """Raise an error if there are errors, or more devices than models.

        Raises:
            InvalidSettingsError: The message lists all errors.
        """
        if not errors and self.num_devices > self.num_subtasks:
            errors.append(
                f"num_devices must be at most the number of {self.subtask}s ({self.num_subtasks}), "
                f"not {self.num_devices}: a {self.subtask} trains on one device"
            )
        if errors:
            raise InvalidSettingsError(errors)

    def resources(self, *, gpus_in_cluster: bool) -> TrialResources:
        """Return the default resources of a trial: a CPU or GPU for each device."""
        return Mirrored(self.num_devices).resources(gpus_in_cluster=gpus_in_cluster)

    def shares(self, resources: TrialResources) -> tuple[TrialResources, ...]:
        """Return the resources of each process of a trial."""
        share = TrialResources(
            resources.cpus // self.num_devices, resources.gpus / self.num_devices
        )
        return (share,) * self.num_devices

    def check(self, resources: TrialResources) -> None:
        """Check that a trial's resources can be divided among the devices and are not too large.

        Raises:
            InvalidSettingsError: They do not fit; the message lists all errors.
        """
        errors = []
        if resources.cpus % self.num_devices:
            errors.append(
                f"resources.cpus is {resources.cpus}, which is not divisible by "
                f"parallelism.num_devices, {self.num_devices}: it is for the whole trial, and all "
                "its processes get the same; use a multiple"
            )
        if resources.gpus > self.num_devices:
            errors.append(
                f"resources.gpus is {resources.gpus:g} but parallelism.num_devices is "
                f"{self.num_devices}: a {self.subtask} trains on one GPU or a part of it; reserve "
                f"fewer, or train more {self.subtask}s at a time"
            )
        if errors:
            raise InvalidSettingsError(errors)
