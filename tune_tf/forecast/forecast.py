"""Expected time, memory and disk space of a sweep."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from tune_tf.forecast.range import Range


@dataclass(frozen=True)
class ModelForecast:
    """Measurements of one config.

    Args:
        label: ``smallest``, ``largest``, ``random 1``.
        config: Sampled values.
        num_parameters: Number of parameters of the model.
        checkpoint_bytes: Size of a checkpoint.
        memory_bytes: Peak memory of a trial in fresh processes; None if not measured.
        gpu_memory_bytes: Peak GPU memory of the same trial; None if not measured or without GPUs.
        epoch_s: Seconds per iteration, over rounds and slots.
        trace_s: Extra seconds of the first iteration of a model structure.
        start_s: Seconds to start the trial in a reused process.
    """

    label: str
    config: Mapping[str, Any]
    num_parameters: int
    checkpoint_bytes: int
    memory_bytes: int | None
    gpu_memory_bytes: int | None
    epoch_s: Range
    trace_s: float
    start_s: float

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ModelForecast":
        """Restore the output of :meth:`to_dict`."""
        return cls(**{**data, "epoch_s": Range.from_dict(data["epoch_s"])})

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain data."""
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**plain, "config": dict(self.config), "epoch_s": self.epoch_s.to_dict()}


@dataclass(frozen=True)
class Forecast:
    """Expected time, memory and disk space of a sweep.

    Times are those of the whole sweep unless stated otherwise, from call to return of
    ``run_sweep``.

    Args:
        name: Name of the sweep.
        settings_digest: Digest of the sweep's settings.
        made_at: Time of the forecast, as ISO 8601.
        machine: Description of the machine measured on.
        cpus: Cores reserved per trial.
        gpus: GPUs reserved per trial.
        num_at_once: Number of parallel trials.
        num_fitting_memory: Number of parallel trials of the largest config that fit in memory.
        max_t: Most iterations of a trial.
        models: Measured configs, the smallest and the largest first.
        num_parameters: Number of parameters of a model.
        memory_bytes: Peak host memory of a trial, all its processes, at the sweep's end.
        gpu_memory_bytes: Peak GPU memory of a trial; None without GPUs.
        epoch_s: Seconds per iteration of a trial.
        trials: Number of trials started.
        epochs: Number of iterations of all trials.
        wall_s: Seconds of the whole sweep.
        closing_s: Of these, seconds after the last trial: report and best model.
        cpu_hours: Reserved cores times hours.
        gpu_hours: Reserved GPUs times hours.
        disk_bytes: Size of the sweep's folder.
        closing_bytes: Of these, bytes written after the last trial.
        mlflow_bytes: Growth of MLflow's store and artifacts.
        phases: Seconds by phase, in order.
        assumptions: Assumptions of the forecast, in sentences.
        warnings: What the user should know before the sweep starts.
    """

    name: str
    settings_digest: str
    made_at: str
    machine: str
    cpus: int
    gpus: float
    num_at_once: int
    num_fitting_memory: int
    max_t: int
    models: tuple[ModelForecast, ...]
    num_parameters: Range
    memory_bytes: Range
    gpu_memory_bytes: Range | None
    epoch_s: Range
    trials: Range
    epochs: Range
    wall_s: Range
    closing_s: Range
    cpu_hours: Range
    gpu_hours: Range
    disk_bytes: Range
    closing_bytes: Range
    mlflow_bytes: Range
    phases: Mapping[str, Range]
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...] = field(default_factory=tuple)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Forecast":
        """Restore the output of :meth:`to_dict`.

        Raises:
            KeyError: A field is missing.
            TypeError: A field has a wrong type.
        """
        read = {name: data[name] for name in (each.name for each in fields(cls))}
        for name in _RANGES:
            read[name] = None if read[name] is None else Range.from_dict(read[name])
        return cls(
            **read
            | {
                "models": tuple(ModelForecast.from_dict(each) for each in read["models"]),
                "phases": {name: Range.from_dict(it) for name, it in read["phases"].items()},
                "assumptions": tuple(read["assumptions"]),
                "warnings": tuple(read["warnings"]),
            }
        )

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain data."""
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        for name in _RANGES:
            plain[name] = None if plain[name] is None else plain[name].to_dict()
        return plain | {
            "models": [each.to_dict() for each in self.models],
            "phases": {name: it.to_dict() for name, it in self.phases.items()},
            "assumptions": list(self.assumptions),
            "warnings": list(self.warnings),
        }


_RANGES = (
    "num_parameters",
    "memory_bytes",
    "gpu_memory_bytes",
    "epoch_s",
    "trials",
    "epochs",
    "wall_s",
    "closing_s",
    "cpu_hours",
    "gpu_hours",
    "disk_bytes",
    "closing_bytes",
    "mlflow_bytes",
)
