"""Base class of the kinds of parallelism."""

from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, Literal, Self, get_args, get_origin, get_type_hints

from tune_tf.errors import InvalidSettingsError, did_you_mean, one_of
from tune_tf.resources import TrialResources

Placement = Literal["pack", "spread", "strict_spread"]
"""Placement of a trial's workers: on few nodes, on many nodes, or each on a separate node."""

Uneven = Literal["split", "refuse"]


@dataclass(frozen=True)
class Minimum:
    """Smallest value of a setting that is an integer, with the remedy for a smaller one."""

    value: int
    remedy: str = ""


Count = Annotated[int, Minimum(1)]
OptionalCount = Annotated[int | None, Minimum(1)]


@dataclass(frozen=True)
class Parallelism:
    """Base class of the kinds of parallelism: layouts of one trial over devices.

    The annotation of a setting is its rule: ``bool``, a ``Literal``, or an integer with a
    :class:`Minimum`.

    Attributes:
        kind: Name in sweep files.
        trainable: Its Tune trainable, as ``module:class``. Trials load it, sweep files do not.
        fills_node: Whether a trial can use more devices of a node than were declared.
        supports_fit: Whether ``keras.Model.fit`` can train it.
        shares_frozen: Whether its trials share the outputs of frozen layers.
        supports_row_functions: Whether a workload's ``per_example`` runs inside its graphs.
        replica_setting: Setting that determines the number of replicas.

    Raises:
        InvalidSettingsError: A value is not allowed; the message lists all errors.
    """

    kind: ClassVar[str]
    trainable: ClassVar[str]
    fills_node: ClassVar[bool] = False
    supports_fit: ClassVar[bool] = False
    supports_row_functions: ClassVar[bool] = True
    shares_frozen: ClassVar[bool] = True
    replica_setting: ClassVar[str] = "num_replicas"

    def __post_init__(self) -> None:
        """Validate the settings."""
        rules = self.rules()
        names = sorted(rules, key=lambda name: rules[name] != Count)
        errors = [_setting_error(name, getattr(self, name), rules[name]) for name in names]
        if errors := list(filter(None, errors)) or self.conflicts():
            raise InvalidSettingsError(errors)

    @classmethod
    def rules(cls) -> dict[str, Any]:
        """Return the annotation of each setting."""
        hints = get_type_hints(cls, include_extras=True)
        return {field.name: hints[field.name] for field in fields(cls)}

    @classmethod
    def on_devices(cls, num_devices: int) -> Self | None:
        """Return this kind on all of at least 2 devices; None if ``scale`` does not compare it."""
        return None

    def conflicts(self) -> list[str]:
        """Return the errors of settings that do not fit together."""
        return []

    @property
    def in_processes(self) -> bool:
        """Whether models train in processes of their own, one per bundle."""
        return False

    @property
    def num_workers(self) -> int:
        """Number of processes that train."""
        return 1

    @property
    def min_workers(self) -> int | None:
        """Fewest processes with which a trial resumes; None for all."""
        return None

    @property
    def num_replicas(self) -> int:
        """Number of model replicas that share a batch."""
        return 1

    @property
    def num_devices(self) -> int:
        """Number of devices of a trial."""
        return self.num_replicas

    @property
    def replicas_per_worker(self) -> int:
        """Number of model replicas in one of several processes."""
        return 1

    @property
    def micro_batches(self) -> int:
        """Pieces into which a replica splits its part of a batch."""
        return 1

    @property
    def synchronized_batch_norm(self) -> bool:
        """Whether batch statistics cover all replicas."""
        return False

    @property
    def uneven(self) -> Uneven:
        """Treatment of a batch that does not divide by the replicas."""
        return "split"

    @property
    def placement(self) -> Placement:
        """Placement of the processes."""
        return "pack"

    @property
    def label(self) -> str:
        """Short readable description."""
        return self.kind.replace("_", " ")

    @property
    def single_model(self) -> "Parallelism":
        """Parallelism of one model of all rows."""
        return self

    def scaled_to(self, num_replicas: int) -> "Parallelism | None":
        """Return the layout with this number of model replicas; None if there is none."""
        return None

    def scaled_to_resources(
        self, base: TrialResources, reserved: TrialResources, *, batch_size: int
    ) -> "Parallelism":
        """Return the layout for the reserved instead of the declared resources."""
        return self

    def resources(self, *, gpus_in_cluster: bool) -> TrialResources:
        """Return the default resources of a trial: a CPU or GPU for each device."""
        return TrialResources(self.num_devices, self.num_devices if gpus_in_cluster else 0)

    def shares(self, resources: TrialResources) -> tuple[TrialResources, ...]:
        """Return the resources of each process of a trial."""
        num = self.num_workers
        return (resources.with_counts(resources.cpus // num, resources.gpus / num),) * num

    def check(self, resources: TrialResources) -> None:
        """Check that the resources of a trial fit its devices; the error lists all conflicts."""
        if errors := self.resource_errors(resources):
            raise InvalidSettingsError(errors)

    def resource_errors(self, resources: TrialResources) -> list[str]:
        """Return the errors of a trial's resources."""
        raise NotImplementedError


def _setting_error(name: str, value: object, rule: Any) -> str:
    """Return the error of a setting; empty if it is valid."""
    remedy = ""
    if rule is bool:
        is_valid, allowed = isinstance(value, bool), "true or false"
    elif get_origin(rule) is Literal:
        known = get_args(rule)
        is_valid, allowed, remedy = value in known, one_of(known), did_you_mean(value, known)
    else:
        kind, minimum = get_args(rule)
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        is_valid = value >= minimum.value if is_integer else value is None and kind is not int
        allowed = f"an integer of at least {minimum.value}"
        remedy = f": {minimum.remedy}" if minimum.remedy else ""
    return "" if is_valid else f"{name} must be {allowed}, not {value!r}{remedy}"
