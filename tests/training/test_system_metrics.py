"""The load of a trial's machine, process and GPUs."""

import os
import sys
import time
from types import SimpleNamespace

import psutil
import pytest

from tune_tf.result_keys import PEAK_MEMORY
from tune_tf.training.system_metrics import (
    SystemMetrics,
    peak_memory_result,
    reserved_gpus,
    sum_peak_memory,
)


class Nvml:
    """Three cards."""

    NVMLError = type("NVMLError", (Exception,), {})
    uuids = ("GPU-a", "GPU-b", "GPU-c")
    there = True

    def nvmlInit(self):  # noqa: N802
        if not self.there:
            raise self.NVMLError

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
def sample_of(monkeypatch):
    """Return a function from what is visible to a sample of the metrics."""

    def sample(visible, *, has_driver=True):
        monkeypatch.setitem(sys.modules, "pynvml", Nvml())
        monkeypatch.setattr(Nvml, "there", has_driver)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        return SystemMetrics(reserved_gpus()).sample()

    return sample


def test_an_epoch_is_sampled_once_a_second_at_most_and_the_first_of_each_trial(monkeypatch):
    now, sampled = [0.0], []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    metrics = SystemMetrics()
    for now[0] in (0.05, 0.5, 1.04, 1.05, 2.5, 2.6):
        if now[0] == 2.6:
            metrics.begin()
        sampled.append(bool(metrics.sample()))

    assert sampled == [True, False, False, True, True, True]


def test_names_and_units_are_those_of_mlflow(sample_of):
    from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor
    from mlflow.system_metrics.metrics.gpu_monitor import GPUMonitor

    theirs = CPUMonitor()
    theirs.collect_metrics()
    source = set(GPUMonitor.collect_metrics.__code__.co_consts)
    told = sample_of("0")
    ours = {name.removeprefix("system/") for name in told}

    assert set(theirs.metrics) <= ours
    own = {"process_cpu_utilization_percentage", "process_memory_usage_megabytes"}
    for name in ours - set(theirs.metrics) - own:
        assert name.removeprefix("gpu_0") in source, f"MLflow does not call it {name}"
    memory = psutil.Process(os.getpid()).memory_info().rss / 1e6
    assert told["system/process_memory_usage_megabytes"] == pytest.approx(memory, rel=0.2)
    assert 0 < told["system/system_memory_usage_percentage"] <= 100


def test_a_card_tells_its_memory_and_load(sample_of):
    told = sample_of("2")

    assert {name: value for name, value in told.items() if "gpu" in name} == {
        "system/gpu_2_memory_usage_percentage": 25.0,
        "system/gpu_2_memory_usage_megabytes": 2000.0,
        "system/gpu_2_utilization_percentage": 40.0,
    }


@pytest.mark.parametrize(
    ("visible", "has_driver", "indices"),
    [
        pytest.param("1,2", True, [1, 2], id="numbers"),
        pytest.param("GPU-c, GPU-a", True, [2, 0], id="uuids"),
        pytest.param("", True, [], id="none"),
        pytest.param("0", False, [], id="no driver"),
    ],
)
def test_only_the_gpus_of_the_trial_are_looked_at(visible, has_driver, indices, sample_of):
    told = sample_of(visible, has_driver=has_driver)

    assert {int(name.split("_")[1]) for name in told if "/gpu_" in name} == set(indices)


def test_peak_memory_is_added_up_over_all_processes_that_told_it():
    told = peak_memory_result()[PEAK_MEMORY]
    assert 0 < told <= peak_memory_result()[PEAK_MEMORY]
    both = [{PEAK_MEMORY: 1.0, "system/rows_per_s": 0.5}, {PEAK_MEMORY: 2.0}]
    assert sum_peak_memory(both[0], both) == {PEAK_MEMORY: 3.0, "system/rows_per_s": 0.5}
