"""CPUs and GPUs of a trial."""

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated

from pydantic import Field, field_validator

from tune_tf.errors import ErrorDetail, InvalidSettingsError
from tune_tf.validation import validated

ACCELERATOR_PREFIX = "accelerator_type:"
"""Prefix of Ray's resource of a node that has accelerators of a type."""

_ACCELERATOR_SHARE = 0.001  # as Ray's own tasks and actors request it
_OF_RAY = {"CPU", "GPU", "memory", "object_store_memory"}


@validated
class TrialResources:
    """Resources that Ray reserves for a running trial.

    Args:
        cpus: CPU cores, an integer of at least 1; also the number of TensorFlow's threads.
        gpus: GPUs; an integer, or a fraction below 1 to share a GPU.
        accelerator_type: Type of GPU, as Ray names it, of the nodes that a trial runs on; None for
            any. It reserves none: ``gpus`` does. Example: ``H100``.
        custom: Custom resources of Ray that each process of the trial reserves, by name. Example:
            ``{fast_disk: 1}``.

    Raises:
        InvalidSettingsError: A number is invalid; lists all errors.
    """

    cpus: Annotated[int, Field(ge=1)] = 1
    gpus: Annotated[float, Field(ge=0)] = 0
    accelerator_type: str | None = None
    custom: Mapping[str, float] = field(default_factory=dict, hash=False)

    @field_validator("gpus")
    @classmethod
    def _check_gpus(cls, gpus: float) -> float:
        if gpus > 1 and gpus % 1:
            raise ValueError(
                f"must be an integer if above 1, not {gpus!r}: Ray shares a single card in "
                "fractions, but never one card and a part of another"
            )
        return gpus if gpus % 1 else int(gpus)

    @field_validator("accelerator_type")
    @classmethod
    def _check_type(cls, kind: str | None) -> str | None:
        if kind is not None and (not kind or ":" in kind):
            raise ValueError(f"must be a type as Ray names it, like H100, not {kind!r}")
        return kind

    @field_validator("custom")
    @classmethod
    def _check_custom(cls, custom: Mapping[str, float]) -> Mapping[str, float]:
        errors = []
        for name, count in custom.items():
            if not name or ":" in name:
                errors.append(ErrorDetail("", f"must have names without ':' as keys, not {name!r}"))
            elif name.upper() in ("CPU", "GPU", "CPUS", "GPUS") or name in _OF_RAY:
                errors.append(ErrorDetail(name, "is a resource of Ray's own, not a custom one"))
            elif count <= 0 or (count > 1 and count % 1):
                text = f"must be a whole number, or a fraction below 1, not {count:g}"
                errors.append(ErrorDetail(name, text))
        if errors:
            raise InvalidSettingsError(errors)
        return custom

    @classmethod
    def of_bundle(cls, bundle: Mapping[str, float]) -> "TrialResources":
        """Return the resources of a process in a placement-group bundle."""
        names = [name for name in bundle if name.startswith(ACCELERATOR_PREFIX)]
        return cls(
            cpus=max(1, int(bundle.get("CPU", 1))),
            gpus=bundle.get("GPU", 0),
            accelerator_type=names[0].removeprefix(ACCELERATOR_PREFIX) if names else None,
            custom={name: bundle[name] for name in bundle.keys() - _OF_RAY - set(names)},
        )

    @property
    def bundle(self) -> dict[str, float]:
        """Placement-group bundle of a process that has all of it."""
        bundle = {"CPU": float(self.cpus)} | ({"GPU": float(self.gpus)} if self.gpus else {})
        if self.accelerator_type is not None:
            bundle[f"{ACCELERATOR_PREFIX}{self.accelerator_type}"] = _ACCELERATOR_SHARE
        return bundle | {name: float(count) for name, count in self.custom.items()}

    def __str__(self) -> str:
        """Return what is reserved, such as ``2 CPU, 1 GPU, of type H100``."""
        return format_bundle(self.bundle)


def format_bundle(bundle: Mapping[str, float]) -> str:
    """Return the resources of a bundle as text."""
    return ", ".join(
        f"of type {name.removeprefix(ACCELERATOR_PREFIX)}"
        if name.startswith(ACCELERATOR_PREFIX)
        else f"{count:g} {name}"
        for name, count in bundle.items()
    )
