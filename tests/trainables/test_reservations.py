"""Warnings of devices that are reserved and hardly used."""

import logging
from types import SimpleNamespace

import pytest

from tune_tf import SweepConfig, run_sweep
from tune_tf.resources import TrialResources
from tune_tf.trainables import resource_warnings
from tune_tf.trainables.resource_warnings import ReservationMonitor
from tune_tf.training.system_metrics import Gpu, SystemMetrics

pytestmark = pytest.mark.tf


class Trial:
    """What the callback reads of a trial."""

    def __init__(self, trial_id="t1", cpus=1.0, gpus=0.0, workers=()):
        self.trial_id = trial_id
        bundles = [*workers, {"CPU": cpus, "GPU": gpus}]
        self.placement_group_factory = SimpleNamespace(bundles=bundles)

    def __str__(self):
        return f"digits_{self.trial_id}"


def told(caplog, watch, trial, samples, *, every_s=3.0, processes=1):
    """Return the warnings about results that hold given system metrics, the first one included."""
    for _ in range(processes):
        for count, sample in enumerate(samples, 1):
            times = {"iterations_since_restore": count, "timestamp": count * every_s}
            system = {f"system/{name}": value for name, value in sample.items()}
            watch.on_trial_result(trial=trial, result=times | system)
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def load(cpu=100.0, machine=30.0, **gpus):
    """Return the metrics of one sample, the use of cards by ``gpu_<number>``."""
    return {
        "process_cpu_utilization_percentage": cpu,
        "cpu_utilization_percentage": machine,
    } | {f"{name}_utilization_percentage": use for name, use in gpus.items()}


def test_an_idle_gpu_is_told_with_its_trial_its_use_and_what_to_do(caplog):
    trial, watch = Trial(gpus=1), ReservationMonitor(TrialResources(gpus=1))
    (message,) = told(caplog, watch, trial, [load(gpu_3=use) for use in (90, 1, 2, 0, 3, 0)])

    assert "trial digits_t1 reserves 1 GPU(s)" in message
    assert "card 3 (1.2 %)" in message
    assert "5 samples" in message
    assert "resources.gpus: 0.5" in message
    assert "enlarge the batch, or reserve none" in message


def test_one_idle_gpu_of_two_is_told(caplog):
    trial, watch = Trial(cpus=2, gpus=2), ReservationMonitor(TrialResources(2, 2))
    samples = [load(cpu=200, gpu_0=80, gpu_1=0)] * 6

    (message,) = told(caplog, watch, trial, samples)

    assert "card 1 (0.0 %)" in message
    assert "card 0" not in message


def test_idle_cpus_are_told_in_cores(caplog):
    trial, watch = Trial(cpus=4), ReservationMonitor(TrialResources(4))
    (message,) = told(caplog, watch, trial, [load(cpu=150)] * 6)

    assert "reserves 4 CPUs, of which its process uses 1.5" in message
    assert "fewer resources.cpus" in message


@pytest.mark.parametrize(
    ("resources", "samples", "every_s"),
    [
        pytest.param((1, 1), [load(gpu_0=5)] * 6, 3, id="a gpu in use"),
        pytest.param((1, 1), [load()] * 6, 3, id="a gpu that nobody samples"),
        pytest.param((1, 1), [load(gpu_0=0)] * 5, 3, id="too few samples"),
        pytest.param((1, 1), [load(gpu_0=0)] * 6, 1, id="too short"),
        pytest.param((2, 0), [load(cpu=100)] * 6, 3, id="half of the cpus in use"),
        pytest.param((1, 0), [load(cpu=10)] * 6, 3, id="a single cpu"),
        pytest.param((2, 0), [load(cpu=60, machine=95)] * 6, 3, id="a busy machine"),
        pytest.param((2, 0), [{}] * 6, 3, id="no system metrics"),
    ],
)
def test_nothing_is_told_of_what_is_used_or_not_known(resources, samples, every_s, caplog):
    trial, watch = Trial("t1", *resources), ReservationMonitor(TrialResources(*resources))

    assert told(caplog, watch, trial, samples, every_s=every_s) == []


def test_the_first_iteration_of_each_process_does_not_count(caplog):
    trial, watch = Trial(gpus=1), ReservationMonitor(TrialResources(gpus=1))
    samples = [load(gpu_0=0)] * 5

    assert told(caplog, watch, trial, samples, processes=3) == []


def test_each_kind_of_idle_resource_is_warned_of_once_a_sweep(caplog):
    watch = ReservationMonitor(TrialResources(2, 1))
    for number in range(3):
        told(caplog, watch, Trial(f"t{number}", 2, 1), [load(cpu=20, gpu_0=0)] * 12)

    assert len(caplog.records) == 2
    assert all("digits_t0" in record.getMessage() for record in caplog.records)


def test_an_idle_trial_is_found_after_one_in_use(caplog):
    watch = ReservationMonitor(TrialResources(gpus=1))
    told(caplog, watch, Trial("t1", gpus=1), [load(gpu_0=60)] * 6)
    (message,) = told(caplog, watch, Trial("t2", gpus=1), [load(gpu_0=0)] * 6)

    assert "digits_t2" in message


def test_a_trial_is_judged_by_its_own_samples(caplog):
    watch = ReservationMonitor(TrialResources(gpus=1))
    for name in ("t1", "t2"):
        told(caplog, watch, Trial(name, gpus=1), [load(gpu_0=0)] * 4)

    assert not caplog.records


def test_what_a_scheduler_has_added_is_not_judged(caplog):
    watch = ReservationMonitor(TrialResources(2))

    assert told(caplog, watch, Trial(cpus=4), [load(cpu=90)] * 6) == []


def test_of_several_workers_one_is_judged_by_its_own_share(caplog):
    trial = Trial(cpus=2, workers=[{}, {"CPU": 2.0}])
    (message,) = told(caplog, ReservationMonitor(TrialResources(2)), trial, [load(cpu=20)] * 6)

    assert "reserves 2 CPUs" in message


def test_the_names_read_are_those_that_trials_report():
    clock = iter((0.0, 2.0))
    nvml = SimpleNamespace(
        NVMLError=AttributeError,  # of all that it does not have
        nvmlDeviceGetUtilizationRates=lambda handle: SimpleNamespace(gpu=1),
    )
    reported = SystemMetrics([Gpu(nvml, 2, "card")], clock=lambda: next(clock)).sample()

    assert {f"system/{name}" for name in load(gpu_2=1)} <= set(reported)


WORKLOAD = """
import time
from pathlib import Path
import keras
from tune_tf.workloads.digits import DigitsMLP


class UntilItIsTold(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.end = time.monotonic() + 240

    def on_epoch_end(self, epoch, logs=None):
        self.model.stop_training = Path({told!r}).exists() or time.monotonic() > self.end


class Tiny(DigitsMLP):
    def callbacks(self, config):
        return [UntilItIsTold()]
"""


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_a_sweep_of_tiny_models_on_many_cpus_says_so(tmp_path, monkeypatch, caplog):
    warning = resource_warnings._log.warning
    monkeypatch.setattr(resource_warnings, "_TIME_S", 1)
    monkeypatch.setattr(
        resource_warnings, "_BUSY_MACHINE", 101
    )  # by whatever else runs beside tests
    told = tmp_path / "told"
    monkeypatch.setattr(
        resource_warnings._log, "warning", lambda *text: (warning(*text), told.touch())
    )
    (tmp_path / "tiny.py").write_text(WORKLOAD.format(told=str(told)))
    config = SweepConfig.from_dict(
        {
            "name": "idle",
            "workload": "tiny.py:Tiny",
            "objective": {"metric": "loss", "mode": "min"},
            "space": {"width": {"choice": [2, 4]}, "batch_size": 1024},
            "scheduler": {"name": "fifo", "max_t": 100_000},
            "resources": {"cpus": 4},
            "budget": {"num_samples": 1},
            "mlflow": {"tracking_uri": f"sqlite:///{tmp_path}/mlflow.db", "log_best_model": False},
            "storage_path": str(tmp_path / "sweeps"),
        }
    )
    run_sweep(config, base_dir=tmp_path)

    (message,) = [each for each in caplog.messages if "reserves" in each]
    assert "trial_00000 reserves 4 CPUs, of which its process uses" in message
