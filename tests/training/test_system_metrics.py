"""The load of a trial's machine, process and GPUs."""

import os
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


def test_an_epoch_is_sampled_once_a_second_at_most_and_the_first_of_each_trial():
    now, sampled = [0.0], []
    metrics = SystemMetrics(clock=lambda: now[0])
    for now[0] in (0.05, 0.5, 1.04, 1.05, 2.5, 2.6):
        if now[0] == 2.6:
            metrics.begin()
        sampled.append(bool(metrics.sample()))

    assert sampled == [True, False, False, True, True, True]


def test_names_and_units_are_those_of_mlflow():
    from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor
    from mlflow.system_metrics.metrics.gpu_monitor import GPUMonitor

    theirs = CPUMonitor()
    theirs.collect_metrics()
    source = set(GPUMonitor.collect_metrics.__code__.co_consts)
    told = SystemMetrics(reserved_gpus("0", Nvml())).sample()
    ours = {name.removeprefix("system/") for name in told}

    assert set(theirs.metrics) <= ours
    own = {"process_cpu_utilization_percentage", "process_memory_usage_megabytes"}
    for name in ours - set(theirs.metrics) - own:
        assert name.removeprefix("gpu_0") in source, f"MLflow does not call it {name}"
    memory = psutil.Process(os.getpid()).memory_info().rss / 1e6
    assert told["system/process_memory_usage_megabytes"] == pytest.approx(memory, rel=0.2)
    assert 0 < told["system/system_memory_usage_percentage"] <= 100


def test_a_card_tells_its_memory_and_load():
    told = SystemMetrics(reserved_gpus("2", Nvml())).sample()

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
        pytest.param(None, True, [0, 1, 2], id="all"),
        pytest.param("0", False, [], id="no driver"),
    ],
)
def test_only_the_gpus_of_the_trial_are_looked_at(visible, has_driver, indices, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(Nvml, "there", has_driver)

    assert [gpu.index for gpu in reserved_gpus(visible, Nvml())] == indices


def test_peak_memory_is_added_up_over_all_processes_that_told_it():
    told = peak_memory_result()[PEAK_MEMORY]
    assert 0 < told <= peak_memory_result()[PEAK_MEMORY]
    both = [{PEAK_MEMORY: 1.0, "system/rows_per_s": 0.5}, {PEAK_MEMORY: 2.0}]
    assert sum_peak_memory(both[0], both) == {PEAK_MEMORY: 3.0, "system/rows_per_s": 0.5}
