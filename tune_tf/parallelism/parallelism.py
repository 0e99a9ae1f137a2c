"""Base class of the kinds of parallelism."""

from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, GetJsonSchemaHandler
from pydantic_core import CoreSchema

from tune_tf.errors import InvalidSettingsError
from tune_tf.formatting import counted
from tune_tf.resources import TrialResources
from tune_tf.validation import described_schema, validated

Placement = Literal["pack", "spread", "strict_spread"]
"""Placement of a trial's workers: on few nodes, on many nodes, or each on a separate node."""

Count = Annotated[int, Field(ge=1)]


@validated
class Parallelism:
    """Base class of the kinds of parallelism: layouts of one trial over devices.

    Attributes:
        kind: Name in sweep files.
        trainable: Its Tune trainable, as ``module:class``. Trials load it, sweep files do not.
        part: What is on each device, in messages.
        supports_row_functions: Whether a workload's ``per_example`` runs inside its graphs.
        shares_gpus: Whether each device may be a share of a GPU.
        pieces_save_memory: Whether a trial needs less memory with more micro-batches.

    Raises:
        InvalidSettingsError: A value is not allowed; the message lists all errors.
    """

    kind: ClassVar[str]
    trainable: ClassVar[str]
    part: ClassVar[str] = "replica"
    supports_row_functions: ClassVar[bool] = True
    shares_gpus: ClassVar[bool] = False
    pieces_save_memory: ClassVar[bool] = True

    # What is no setting of a kind.
    micro_batches = 1
    synchronized_batch_norm = False
    placement = "pack"

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Return the JSON schema of a section of a sweep file, with its kind."""
        reference = described_schema(cls, core_schema, handler)
        schema = handler.resolve_ref_schema(reference)
        kind = {"const": cls.kind, "description": "Kind of parallelism."}
        schema["properties"] = {"kind": kind, **schema["properties"]}
        if cls.kind != "mirrored":  # the default
            schema["required"] = ["kind"]
        return reference

    @property
    def in_processes(self) -> bool:
        """Whether models train in processes of their own, one per bundle."""
        return self.num_workers > 1

    @property
    def num_workers(self) -> int:
        """Number of processes that train."""
        return 1

    @property
    def num_replicas(self) -> int:
        """Number of model replicas that share a batch."""
        return 1

    @property
    def num_devices(self) -> int:
        """Number of devices of a trial."""
        return self.num_replicas

    @property
    def label(self) -> str:
        """Short readable description."""
        return counted(self.num_devices, self.part)

    def scaled_to(self, num_replicas: int) -> "Parallelism | None":
        """Return the layout with this number of model replicas; None if there is none."""
        return None

    def resources(self, *, gpus_in_cluster: bool) -> TrialResources:
        """Return the default resources of a trial: a CPU or GPU for each device."""
        gpus = self.num_devices if gpus_in_cluster else 0
        return TrialResources(self.num_devices, gpus)

    def shares(self, resources: TrialResources) -> tuple[TrialResources, ...]:
        """Return the resources of each process of a trial, which are equal."""
        num = self.num_workers
        return (replace(resources, cpus=resources.cpus // num, gpus=resources.gpus / num),) * num

    def check(self, resources: TrialResources) -> None:
        """Check that each process of a trial gets equal resources, and each device a CPU or GPU.

        Raises:
            InvalidSettingsError: The resources do not fit; the message lists all errors.
        """
        cpus, gpus, num = resources.cpus, resources.gpus, self.num_devices
        errors = []
        if cpus % self.num_workers or (cpus < num and not gpus) or cpus < self.num_workers:
            errors.append(
                f"resources.cpus is {cpus} but the trial has {self.label}: each needs at least one "
                "CPU, or one GPU in the same process, and all processes get the same number; "
                f"reserve a multiple of {num}"
            )
        if gpus and gpus != num and not (gpus < num and (self.shares_gpus or num == 1)):
            errors.append(
                f"resources.gpus is {gpus:g} but the trial has {self.label}, which use exactly one "
                f"GPU each: reserve {num}"
            )
        if errors:
            raise InvalidSettingsError(errors)
