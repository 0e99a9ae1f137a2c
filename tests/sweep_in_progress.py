"""The folder of a sweep as its driver leaves it, at any moment."""

import contextlib
import json

import numpy as np
import pytest

from tune_tf.config import SweepConfig
from tune_tf.outcome import Outcome
from tune_tf.record import Record, recorded_results
from tune_tf.sweep_folder import SweepFolder

START_S = 1_790_000_000.0
SETTINGS = {
    "name": "small",
    "workload": "models:Mine",
    "objective": {"metric": "val_accuracy", "mode": "max"},
    "space": {
        "optimizer": {"choice": ["adamw", "sgd"]},
        "momentum": {"uniform": [0.0, 0.95], "when": {"optimizer": "sgd"}},
        "block": {"width": {"int": [8, 128]}},
    },
    "epochs": 9,
    "scheduler": {"name": "asha", "grace_period": 1, "reduction_factor": 3},
    "budget": {"num_samples": 8},
}
IDS = ("a8624273", "a8f1e000", "63e30f00", "5d18a88b")


class SweepInProgress:
    """Writes what a driver and its trials write, on a clock that only this moves."""

    def __init__(self, storage_path, **settings):
        self.now = START_S
        told = SETTINGS | {"storage_path": str(storage_path)} | settings
        self.folder = SweepFolder.create(SweepConfig.from_dict(told), storage_path)
        self.path = self.folder.path
        self.drive()

    def drive(self):
        """Begin, or go on after :meth:`leave`."""
        self.diary = Record(self.path, clock=lambda: self.now)
        self.diary.begin_session()
        self.is_driven = True

    def leave(self):
        """End without a word, as a killed driver does."""
        self.diary.__exit__(None, None, None)
        self.is_driven = False

    def finish(self, *, interrupted=False, run_ids=None):
        self.diary.record_session_end(interrupted=interrupted, run_ids=run_ids or {})
        self.leave()

    def config_of(self, number):
        momentum = 0.9 if number % 2 else 0.5
        optimizer = "sgd" if number % 2 else "adamw"
        return {"optimizer": optimizer, "momentum": momentum, "block": {"width": 8 + number}}

    def create(self, number):
        name, config = f"trial_{number:05d}", self.config_of(number)
        self.diary.record_creation(IDS[number], number, config, name=name, tag=f"{number + 1}")

    def start(self, number):
        self.create(number)
        self.diary.record_start(IDS[number], self.config_of(number), devices="1 CPU")
        (self.path / f"trial_{number:05d}").mkdir(exist_ok=True)

    def report(self, number, *values, done=None, **more):
        """Report values, an iteration each; ``done`` is how the trial ends with the last."""
        iteration = len(recorded_results(self.path, number))
        for place, value in enumerate(values, start=1):
            self.now += 2
            last = done is not None and place == len(values)
            line = {
                "val_accuracy": value,
                "system/rows_per_s": 100.0,
                "done": last,
                "training_iteration": iteration + place,
                "trial_id": IDS[number],
                "timestamp": int(self.now),
                "time_total_s": 2.0 * (iteration + place),
                "pid": 70 + number,
                "hostname": "node-1",
                "node_ip": "127.0.0.1",
                "config": self.config_of(number),
                **more,
            }
            if last:
                line["stop_reason"] = done.value
            self.diary.record_result(number, line)

    def end(self, number, outcome=Outcome.COMPLETED, cause=None):
        self.diary.record_end(IDS[number], outcome, cause)

    def run(self, number, *values, outcome=Outcome.COMPLETED, **more):
        """Run a trial from its start to its end."""
        self.start(number)
        self.report(number, *values, done=outcome, **more)
        self.end(number, outcome)

    def checkpoint(self, number, place):
        """Write and record a checkpoint of a trial's last result, as a trial does."""
        name = f"trial_{number:05d}/checkpoint_{place:06d}"
        results = recorded_results(self.path, number)
        path = self.path / name
        path.mkdir()
        head = np.array(json.dumps({"format": 1, "epoch": len(results)}))
        np.savez(path / "trial.npz", head=head, a0=np.arange(300.0) + place)
        with contextlib.nullcontext(self.diary) if self.is_driven else Record(self.path) as diary:
            diary.record_checkpoint(number, name, results[-1] if results else {})
        return path


@pytest.fixture
def sweeps(tmp_path):
    """Begin sweeps under one storage path; their diaries are given free at the end."""
    begun = []

    def begin(**settings):
        sweep = SweepInProgress(tmp_path / "sweeps", **settings)
        begun.append(sweep)
        return sweep

    begin.storage_path = tmp_path / "sweeps"
    yield begin
    for sweep in begun:
        if sweep.is_driven:
            sweep.leave()


@pytest.fixture
def sweep(sweeps):
    """A sweep that has begun."""
    return sweeps()


@pytest.fixture
def ended(sweep):
    """A sweep of four trials that has ended."""
    sweep.run(0, 0.5, 0.7, mlflow_run_id="f" * 32)
    sweep.run(1, 0.4)
    sweep.run(2, 0.3, 0.9, 0.8)
    sweep.run(3, 0.2)
    sweep.finish(run_ids={"a8f1e000": "e" * 32})
    return sweep
