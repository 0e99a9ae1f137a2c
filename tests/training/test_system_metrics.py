"""The load of a trial's machine, process and GPUs."""

import os
from types import SimpleNamespace

import psutil
import pytest

from tune_tf.training.system_metrics import SystemMetrics, reserved_gpus


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self):
        return self.now


class Nvml:
    """Three cards."""

    NVMLError = type("NVMLError", (Exception,), {})
    uuids = ("GPU-a", "GPU-b", "GPU-c")
    there = True

    def nvmlInit(self):  # noqa: N802
        if not self.there:
            raise self.NVMLError

    def nvmlDeviceGetCount(self):  # noqa: N802
        return 3

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        return self.uuids[index]

    def nvmlDeviceGetHandleByUUID(self, uuid):  # noqa: N802
        return uuid

    def nvmlDeviceGetIndex(self, handle):  # noqa: N802
        return self.uuids.index(handle)

    def nvmlDeviceGetMemoryInfo(self, handle):  # noqa: N802
        return SimpleNamespace(used=2e9, total=8e9)

    def nvmlDeviceGetUtilizationRates(self, handle):  # noqa: N802
        return SimpleNamespace(gpu=40)


@pytest.fixture
def clock():
    return Clock()


def test_an_iteration_is_sampled_once_a_second_at_most(clock):
    metrics = SystemMetrics(clock=clock)
    sampled = []
    for clock.now in (1.0, 1.5, 1.99, 2.0, 3.5):
        sampled.append(bool(metrics.sample()))

    assert sampled == [True, False, False, True, True]


def test_the_first_iteration_of_each_trial_is_sampled(clock):
    metrics = SystemMetrics(clock=clock)
    sampled = []
    for clock.now in (0.05, 0.1, 0.2):
        sampled.append(bool(metrics.sample()))
    metrics.begin()
    clock.now = 0.3
    sampled.append(bool(metrics.sample()))

    assert sampled == [True, False, False, True]


def test_memory_is_told_in_megabytes_of_a_million_bytes(clock):
    metrics = SystemMetrics(clock=clock)
    clock.now = 1.0
    told = metrics.sample()

    own = psutil.Process(os.getpid()).memory_info().rss / 1e6
    assert told["system/process_memory_usage_megabytes"] == pytest.approx(own, rel=0.2)
    assert 0 < told["system/system_memory_usage_percentage"] <= 100


def test_the_names_are_those_of_mlflow(clock):
    from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor
    from mlflow.system_metrics.metrics.gpu_monitor import GPUMonitor

    theirs = CPUMonitor()
    theirs.collect_metrics()
    source = set(GPUMonitor.collect_metrics.__code__.co_consts)
    metrics = SystemMetrics(reserved_gpus("0", Nvml()), clock=clock)
    clock.now = 1.0
    ours = {name.removeprefix("system/") for name in metrics.sample()}

    assert set(theirs.metrics) <= ours
    own = {"process_cpu_utilization_percentage", "process_memory_usage_megabytes"}
    for name in ours - set(theirs.metrics) - own:
        assert name.removeprefix("gpu_0") in source, f"MLflow does not call it {name}"


def test_a_card_tells_its_memory_and_load(clock):
    metrics = SystemMetrics(reserved_gpus("2", Nvml()), clock=clock)
    clock.now = 1.0
    gpu = {name: value for name, value in metrics.sample().items() if "gpu" in name}

    assert gpu == {
        "system/gpu_2_memory_usage_percentage": 25.0,
        "system/gpu_2_memory_usage_megabytes": 2000.0,
        "system/gpu_2_utilization_percentage": 40.0,
    }


@pytest.mark.parametrize(
    ("visible", "indices"),
    [
        pytest.param("1,2", [1, 2], id="numbers"),
        pytest.param("GPU-c, GPU-a", [2, 0], id="uuids"),
        pytest.param("", [], id="none"),
    ],
)
def test_only_the_gpus_of_the_trial_are_looked_at(visible, indices):
    assert [gpu.index for gpu in reserved_gpus(visible, Nvml())] == indices


def test_all_gpus_are_looked_at_where_none_are_hidden(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    assert [gpu.index for gpu in reserved_gpus(None, Nvml())] == [0, 1, 2]


def test_a_machine_without_the_driver_has_no_gpus(monkeypatch):
    monkeypatch.setattr(Nvml, "there", False)

    assert reserved_gpus("0", Nvml()) == ()
