"""Models that are trained apart from each other in one trial."""

from dataclasses import dataclass
from typing import ClassVar

from tune_tf.errors import InvalidSettingsError
from tune_tf.parallelism.mirrored import Mirrored
from tune_tf.parallelism.setting_errors import Placement, is_count
from tune_tf.resources import TrialResources


@dataclass(frozen=True, kw_only=True)
class Subtasks:
    """What the kinds have in common whose trial is several models, each on one device.

    Args:
        num_devices: How many models train at a time, each in a process of its own on its own CPUs
            or GPU. With one, all take turns.
        task_retries: How often one model is started again, from its last known state, when its
            process dies or raises; after that the trial fails.
        micro_batches: As in :class:`Mirrored`.

    Attributes:
        subtask: What one of the models is called in results and messages.
    """

    subtask: ClassVar[str]
    placement: ClassVar[Placement] = "pack"
    num_replicas: ClassVar[int] = 1

    num_devices: int = 1
    task_retries: int = 2
    micro_batches: int = 1

    @property
    def num_subtasks(self) -> int:
        """Models in a trial."""
        raise NotImplementedError

    @property
    def num_workers(self) -> int:
        """Processes in which they train."""
        return self.num_devices

    @property
    def in_a_worker(self) -> Mirrored:
        """How a process trains one of them."""
        return Mirrored(micro_batches=self.micro_batches)

    def setting_errors(self) -> list[str]:
        """Return what is wrong with the settings that all these kinds have."""
        errors = [
            f"{name} must be a whole number of at least 1, not {value!r}"
            for name in ("num_devices", "micro_batches")
            if not is_count(value := getattr(self, name))
        ]
        if self.task_retries != 0 and not is_count(self.task_retries):
            errors.append(
                f"task_retries must be a whole number of at least 0, not {self.task_retries!r}"
            )
        return errors

    def refuse(self, errors: list[str]) -> None:
        """Refuse settings with errors, and more devices than there is something to train on.

        Raises:
            InvalidSettingsError: Tells all.
        """
        if not errors and self.num_devices > self.num_subtasks:
            errors.append(
                f"num_devices must be at most the number of {self.subtask}s, {self.num_subtasks}, "
                f"not {self.num_devices}: a {self.subtask} trains on one device"
            )
        if errors:
            raise InvalidSettingsError(errors)

    def resources(self, *, gpus_in_cluster: bool) -> TrialResources:
        """Return what a trial reserves when nothing else is said: a CPU or GPU for each device."""
        return Mirrored(self.num_devices).resources(gpus_in_cluster=gpus_in_cluster)

    def shares(self, resources: TrialResources) -> tuple[TrialResources, ...]:
        """Return what each process of a trial gets of its resources."""
        share = TrialResources(
            resources.cpus // self.num_devices, resources.gpus / self.num_devices
        )
        return (share,) * self.num_devices

    def check(self, resources: TrialResources) -> None:
        """Refuse resources that do not give every device the same, or more than it can use.

        Args:
            resources: Of the whole trial.

        Raises:
            InvalidSettingsError: Tells all that does not fit.
        """
        errors = []
        if resources.cpus % self.num_devices:
            errors.append(
                f"resources.cpus is {resources.cpus}, which does not divide by "
                f"parallelism.num_devices, {self.num_devices}: it is that of the whole trial, and "
                "all its processes get the same; use a multiple"
            )
        if resources.gpus > self.num_devices:
            errors.append(
                f"resources.gpus is {resources.gpus:g} but parallelism.num_devices is "
                f"{self.num_devices}: a {self.subtask} trains on one GPU or a part of it; reserve "
                f"fewer, or train more {self.subtask}s at a time"
            )
        if errors:
            raise InvalidSettingsError(errors)
