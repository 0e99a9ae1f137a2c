"""What a sweep is expected to take."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from tune_tf.forecast.range import Range


@dataclass(frozen=True)
class ModelForecast:
    """What was measured of one config.

    Args:
        label: What a reader calls it: ``smallest``, ``largest``, ``random 1``.
        config: The trial's values.
        num_parameters: Of its model.
        checkpoint_bytes: Size of a checkpoint.
        memory_bytes: Most memory of the processes of a trial that have trained nothing before;
            None where it was not measured in such processes.
        gpu_memory_bytes: Their GPU memory; None without GPUs too.
        epoch_s: Seconds of an iteration, as a range over rounds and slots.
        trace_s: Seconds that the first iteration of its structure takes longer.
        start_s: Seconds to begin it in a process that has served other trials.
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
        """Return what :meth:`to_dict` wrote."""
        return cls(**{**data, "epoch_s": Range.from_dict(data["epoch_s"])})

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**plain, "config": dict(self.config), "epoch_s": self.epoch_s.to_dict()}


@dataclass(frozen=True)
class Forecast:
    """What a sweep is expected to take.

    Times are of a whole sweep unless said otherwise, from the call of ``run_sweep`` to its return.

    Args:
        name: Of the sweep.
        settings_digest: Tells the settings apart that it is of.
        made_at: When, as ISO 8601.
        machine: What it was measured on, in words.
        cpus: Cores that a trial reserves.
        gpus: GPUs that a trial reserves.
        num_at_once: Trials that run at a time.
        num_fitting_memory: Trials of the largest config whose memory is there at a time.
        max_t: Iterations of a trial that runs to its limit.
        models: What was measured, the smallest and the largest first.
        num_parameters: Of a model.
        memory_bytes: Most host memory of a trial, of all its processes, at the sweep's end.
        gpu_memory_bytes: Most GPU memory of a trial; None without GPUs.
        epoch_s: Seconds of a trial's iteration.
        trials: Trials that are started.
        epochs: Iterations of all trials.
        wall_s: Seconds of the whole sweep.
        closing_s: Seconds of them after the last trial: report and best model.
        cpu_hours: Reserved cores times hours.
        gpu_hours: Reserved GPUs times hours.
        disk_bytes: Size of the sweep's folder.
        closing_bytes: Size of what is written there after the last trial.
        mlflow_bytes: What MLflow's store and artifacts grow by.
        phases: Where the seconds go, in order, by what is done.
        assumptions: What it rests on, in sentences.
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
        """Return what :meth:`to_dict` wrote.

        Raises:
            KeyError: Something is missing.
            TypeError: Something is not as it was written.
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
        """Return it as plain data."""
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
