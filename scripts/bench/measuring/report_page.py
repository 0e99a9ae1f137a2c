"""Duration of writing the report of a large sweep."""

import time
from pathlib import Path

import numpy as np

from tune_tf.config import SweepConfig
from tune_tf.outcome import Outcome
from tune_tf.record import Record
from tune_tf.report import write_report
from tune_tf.results import SweepResult, TrialResult

_STARTED_S = 1_700_000_000.0


def measure_report(folder: Path, num_trials: int, num_epochs: int) -> dict[str, float]:
    """Write the report of a synthetic sweep.

    Args:
        folder: Where to; left as it is afterwards.
        num_trials: Trials of the sweep.
        num_epochs: Reports of each trial.
    """
    result = _sweep(folder / "large", num_trials, num_epochs)
    started = time.perf_counter()
    page = write_report(result, folder / "report")
    values = {"report_s": time.perf_counter() - started}
    size_mb = page.stat().st_size / 1e6
    print(
        f"report of {num_trials} trials x {num_epochs} epochs: {values['report_s']:.1f} s, "
        f"{size_mb:.1f} MB"
    )
    return values


def _sweep(folder: Path, num_trials: int, num_epochs: int) -> SweepResult:
    random = np.random.default_rng(1)
    config = SweepConfig(
        name="large",
        workload="tune_tf.workloads.digits:DigitsMLP",
        objective={"metric": "val_accuracy", "mode": "max"},
        space={
            "learning_rate": {"loguniform": [1e-5, 1e-1]},
            "dropout": {"uniform": [0.0, 0.5]},
            "width": {"int": [16, 256]},
            "optimizer": {"choice": ["adamw", "sgd"]},
            "momentum": {"uniform": [0.0, 0.99], "when": {"optimizer": "sgd"}},
        },
        epochs=num_epochs,
        scheduler={"name": "asha"},
        budget={"num_samples": num_trials},
    )
    folder.mkdir(parents=True)
    trials = []
    with Record(folder) as record:
        for number in range(num_trials):
            curve = 1 - np.exp(-np.arange(1, num_epochs + 1) * random.uniform(0.05, 0.5))
            curve = curve * random.uniform(0.5, 1.0) + random.normal(0, 0.01, num_epochs)
            start_s = _STARTED_S + number // 16 * num_epochs
            lines = [
                {
                    "val_accuracy": float(value),
                    "training_iteration": epoch,
                    "timestamp": int(start_s + epoch),
                    "time_this_iter_s": 1.0,
                    "time_total_s": float(epoch),
                    "pid": number % 16,
                    "hostname": "node",
                }
                for epoch, value in enumerate(curve, 1)
            ]
            trial_id = f"{number:08x}"
            optimizer = str(random.choice(["adamw", "sgd"]))
            values = {
                "learning_rate": float(10 ** random.uniform(-5, -1)),
                "dropout": float(random.uniform(0, 0.5)),
                "width": int(random.integers(16, 257)),
                "optimizer": optimizer,
            }
            if optimizer == "sgd":
                values["momentum"] = float(random.uniform(0, 0.99))
            record.record_start(trial_id, number, values)
            for line in lines:
                record.record_result(number, line)
            trials.append(
                TrialResult(
                    trial_id=trial_id,
                    number=number,
                    config=values,
                    outcome=Outcome.COMPLETED if number % 3 == 0 else Outcome.PRUNED,
                    iterations=num_epochs,
                    metrics={"val_accuracy": float(curve[-1])},
                )
            )
    return SweepResult("large", folder, config, folder, tuple(trials))
