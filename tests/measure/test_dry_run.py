"""Dry run: the check of a sweep by one batch in a process of its own."""

import contextlib
import dataclasses
import http.server
import socket
import threading
from pathlib import Path

import pytest

from tune_tf.config import SweepConfig
from tune_tf.errors import InvalidSettingsError, StoreUnavailableError, WorkloadError
from tune_tf.measure.dry_run import _check_server, check_sweep, dry_run_process
from tune_tf.resources import TrialResources
from tune_tf.sweep import plan_sweep

pytestmark = [pytest.mark.tf]

MODEL = """
import os, signal
import keras, numpy as np, tune_tf

class Adds(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        logs["f1"] = 0.5

class Mine(tune_tf.Workload):
    def __init__(self, labels=3, rows=20, validation=True, fault=""):
        self.labels, self.rows, self.validation, self.fault = labels, rows, validation, fault

    def load_data(self, config):
        x = np.ones((self.rows, 4), np.float32)
        if self.fault == "nan":
            x[:] = np.nan
        if self.fault.startswith("/"):
            with open(self.fault, "w") as file:
                file.write(os.environ["CUDA_VISIBLE_DEVICES"])
        y = np.arange(self.rows) % self.labels
        return tune_tf.Data((x, y), (x, y) if self.validation else None)

    def callbacks(self, config):
        made = {
            "adds": lambda: [Adds(), keras.callbacks.CSVLogger("log.csv")],
            "batches": lambda: [keras.callbacks.ModelCheckpoint("a.keras", save_freq=5)],
        }
        return made.get(self.fault, list)()

    def build_model(self, config):
        if self.fault == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        dropout = config.get("dropout", 0.1)
        if config["kind"] == "deep":
            config["depth"]
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dropout(dropout)])
        model.add(keras.layers.Dense(3, activation="softmax"))
        loss = "sparse_categorical_crossentropy"
        model.compile(keras.optimizers.Adam(config["rate"]), loss, metrics=["accuracy"])
        return model
"""
SPACE = {
    "rate": {"loguniform": [1e-4, 1e-1]},
    "kind": {"choice": ["deep", "flat"]},
    "depth": {"int": [1, 3], "when": {"kind": "deep"}},
    "batch_size": 8,
}


@pytest.fixture
def plan_of(tmp_path, monkeypatch):
    monkeypatch.setattr("ray.is_initialized", lambda: False)  # other tests may share a cluster
    (tmp_path / "mine.py").write_text(MODEL)

    def plan_of(space=SPACE, data=None, metric="val_accuracy", **settings):
        config = SweepConfig.from_dict(
            {
                "name": "mine",
                "workload": "mine.py:Mine",
                "data": data or {},
                "objective": {"metric": metric, "mode": "max"},
                "space": space,
                "budget": {"num_samples": 2},
                "mlflow": None,
                **settings,
            }
        )
        return plan_sweep(config, base_dir=tmp_path)

    return plan_of


def test_a_right_sweep_passes_without_a_warning(plan_of):
    assert check_sweep(plan_of()) == []


@pytest.mark.slow
@pytest.mark.parametrize(("gpus", "visible"), [(0, "-1"), (1, "0,1")])
def test_only_the_check_of_a_trial_with_gpus_sees_them(
    gpus, visible, plan_of, tmp_path, monkeypatch
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    plan = plan_of(data={"fault": str(tmp_path / "visible")})
    plan = dataclasses.replace(plan, resources=TrialResources(1, gpus))
    with dry_run_process(plan) as process, contextlib.suppress(InvalidSettingsError):
        process.result(60)

    assert (tmp_path / "visible").read_text() == visible


def test_all_mistakes_are_told_together_with_what_to_write(plan_of):
    space = {**SPACE, "droput": {"uniform": [0.0, 0.5]}}
    plan = plan_of(space, metric="val_acuracy", resources={"gpus": 1}, constraints={"time": "<= 3"})
    with pytest.raises(InvalidSettingsError) as caught:
        check_sweep(plan)
    details = {detail.where: detail.what for detail in caught.value.details}
    assert set(details) == {"space.droput", "objective", "constraints.time", "resources.gpus"}
    assert "did you mean 'dropout'?" in details["space.droput"]
    assert "did you mean 'val_accuracy'?" in details["objective"]
    assert "reports accuracy, loss, val_accuracy, val_loss" in details["constraints.time"]
    assert "write `resources: {cpus: 1, gpus: 0}`" in details["resources.gpus"]


@pytest.mark.slow
def test_a_metric_of_another_task_is_refused_with_those_that_there_are(plan_of):
    with pytest.raises(
        InvalidSettingsError, match="the model reports accuracy, loss, val_accuracy, val_loss"
    ):
        check_sweep(plan_of(metric="r2"))
    with pytest.raises(InvalidSettingsError, match="load_data returns no validation rows"):
        check_sweep(plan_of(data={"validation": False}))


@pytest.mark.slow
def test_a_parameter_that_nothing_reads_is_a_warning(plan_of):
    assert check_sweep(plan_of({**SPACE, "width": 3, "group": {"a": 1}})) == [
        "space.group.a: the workload read it in none of 3 configs",
        "space.width: the workload read it in none of 3 configs",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "text"),
    [
        (
            {"labels": 9},
            r"InvalidArgumentError: Received a label value of 7 .* number the labels from 0",
        ),
        ({"fault": "nan"}, "its loss is not finite: look for NaN"),
        ({"fault": "dies"}, "ended with code -9"),
    ],
    ids=["labels", "nan", "dies"],
)
def test_a_workload_that_cannot_train_is_refused_with_the_cause(data, text, plan_of):
    with pytest.raises(WorkloadError, match=text):
        check_sweep(plan_of(data=data))


@pytest.mark.slow
def test_an_error_names_the_line_of_the_users_code(plan_of):
    space = {name: it for name, it in SPACE.items() if name != "rate"}
    with pytest.raises(WorkloadError, match=r"KeyError: 'rate' \(mine\.py, line \d+\)"):
        check_sweep(plan_of(space))


def test_an_mlflow_server_that_is_down_is_refused_and_one_that_answers_is_not():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        down = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(StoreUnavailableError, match=r"does not respond .*: start the server"):
        _check_server(down)
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        _check_server(f"http://127.0.0.1:{server.server_port}/prefix/")  # answers with an error
        server.shutdown()
    _check_server(f"sqlite:///{Path.cwd()}/mlflow.db")
