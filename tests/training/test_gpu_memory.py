"""The memory of a card that trials share, as the driver tells it."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from tune_tf.errors import UnavailableResourcesError
from tune_tf.training.devices import CONTEXT_MIB, gpu_memory_mib, memory_limit_mib


def driver(told, error=None):
    """Return a stand-in of ``subprocess.run``, and the commands that it was given."""
    asked = []

    def run(command, **options):
        asked.append(command)
        if error:
            raise error
        return subprocess.CompletedProcess(command, 0, stdout=told, stderr="")

    return run, asked


@pytest.mark.parametrize(
    ("visible", "end"),
    [
        pytest.param({}, (), id="all"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "3,5"}, ("--id", "3"), id="numbers"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "GPU-8a"}, ("--id", "GPU-8a"), id="names"),
    ],
)
def test_the_card_is_the_first_that_the_process_may_use(visible, end):
    run, asked = driver("16384, 0\n")

    assert gpu_memory_mib(run=run, environment=visible) == 16384
    assert asked[0] == [*asked[0][:3], *end]


@pytest.mark.parametrize(
    ("told", "error"),
    [
        pytest.param("", FileNotFoundError("nvidia-smi"), id="no driver"),
        pytest.param("", subprocess.TimeoutExpired("nvidia-smi", 30), id="hangs"),
        pytest.param("[N/A]\n", None, id="no number"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_a_card_of_unknown_size_is_refused(told, error):
    run, _ = driver(told, error)
    with pytest.raises(UnavailableResourcesError, match=r"share cannot be enforced.*nvidia-smi"):
        gpu_memory_mib(run=run, environment={})


@pytest.mark.parametrize("told", ["81559, 480\n", "81079, [N/A]\n", "81079\n"])
def test_what_the_driver_keeps_is_not_shared_out(told):
    run, _ = driver(told)

    assert gpu_memory_mib(run=run, environment={}) == 81079


def test_all_shares_together_do_not_overdraw_the_card():
    assert 4 * (memory_limit_mib(0.25, 16384) + CONTEXT_MIB) <= 16384


MIG_NAME = "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f"
MIG = {"CUDA_VISIBLE_DEVICES": f"{MIG_NAME},0"}


class NVMLError(Exception):
    """The error of NVIDIA's package ``pynvml``."""


def test_the_memory_of_a_mig_instance_is_told_by_nvml():
    """``nvidia-smi --id`` takes cards only; NVML takes instances, each with memory of its own."""
    run, asked = driver("81559, 480, Enabled\n")
    memory = SimpleNamespace(total=9856 * 2**20, reserved=20 * 2**20)
    nvml = SimpleNamespace(
        NVMLError=NVMLError,
        nvmlMemory_v2=0x2000028,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=lambda name: name,
        nvmlDeviceGetMemoryInfo=lambda *handle, version: {(MIG_NAME, version): memory}[
            (*handle, 0x2000028)
        ],
    )

    assert gpu_memory_mib(run=run, environment=MIG, nvml=nvml) == 9836
    assert asked == []


def test_a_mig_instance_that_nvml_does_not_know_is_refused(monkeypatch):
    def fail(*arguments):
        raise NVMLError("Not Found")

    nvml = SimpleNamespace(NVMLError=NVMLError, nvmlInit=fail)
    with pytest.raises(UnavailableResourcesError, match=r"MIG-c6.* \(Not Found\).*whole GPUs"):
        gpu_memory_mib(environment=MIG, nvml=nvml)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(UnavailableResourcesError, match=r"only NVML knows: pip .*tune-tf\[gpu\]"):
        gpu_memory_mib(environment=MIG)


def test_a_card_that_is_split_by_mig_is_not_taken_for_one_of_its_instances():
    run, _ = driver("81559, 480, Enabled\n")
    with pytest.raises(
        UnavailableResourcesError, match=r"CUDA_VISIBLE_DEVICES=MIG-.*nvidia-smi -L"
    ):
        gpu_memory_mib(run=run, environment={"CUDA_VISIBLE_DEVICES": "0"})


def test_several_cards_have_the_memory_of_the_smallest_that_is_used():
    run, _ = driver("81559, 480\n16384, 0\n8192, 0\n")

    assert [gpu_memory_mib(num, run=run, environment={}) for num in (1, 2)] == [81079, 16384]
