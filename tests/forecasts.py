"""Forecasts as the tests make them."""

from tune_tf.forecast import Actuals, ConfigMeasurement, Forecast, Range


def model(label="largest", **how):
    """Return what was measured of a config."""
    given = {
        "label": label,
        "config": {"width": 64},
        "num_parameters": 1000,
        "checkpoint_bytes": 12_000,
        "memory_bytes": 900_000_000,
        "gpu_memory_bytes": None,
        "epoch_s": Range(0.1, 0.2, 0.3),
        "trace_s": 1.0,
        "start_s": 0.1,
    }
    return ConfigMeasurement(**given | how)


def forecast(**how):
    """Return a forecast of a sweep of a hundred seconds."""
    given = {
        "name": "small",
        "settings_digest": "0123",
        "made_at": "2026-09-21T10:13:20+00:00",
        "machine": "2 CPU(s)",
        "cpus": 1,
        "gpus": 0,
        "num_at_once": 2,
        "num_fitting_memory": 9,
        "max_t": 9,
        "models": (model(), model("smallest", gpu_memory_bytes=5)),
        "num_parameters": Range(100, 500, 1000),
        "memory_bytes": Range(0.8e9, 0.9e9, 1.0e9),
        "gpu_memory_bytes": None,
        "epoch_s": Range(0.1, 0.2, 0.3),
        "trials": Range.exactly(4),
        "epochs": Range(12, 20, 36),
        "wall_s": Range(80, 100, 150),
        "closing_s": Range(5, 10, 20),
        "cpu_hours": Range(0.01, 0.02, 0.03),
        "gpu_hours": Range.exactly(0),
        "disk_bytes": Range(2e6, 3e6, 4e6),
        "closing_bytes": Range(1e6, 2e6, 2e6),
        "mlflow_bytes": Range(1e6, 2e6, 3e6),
        "phases": {"trials": Range(70, 80, 90)},
        "assumptions": ("The machine is quiet.",),
        "warnings": ("It is not.",),
    }
    return Forecast(**given | how)


def actuals(**how):
    """Return what such a sweep took."""
    given = {
        "wall_s": 125.0,
        "trials": 4,
        "epochs": 40,
        "memory_bytes": 0.9e9,
        "disk_bytes": 3_000_000,
        "closed": True,
    }
    return Actuals(**given | how)
