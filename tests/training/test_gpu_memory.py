"""The memory of a card that trials share, as the driver tells it."""

import subprocess

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


def test_what_the_driver_keeps_is_not_shared_out():
    run, _ = driver("81559, 480\n")

    assert gpu_memory_mib(run=run, environment={}) == 81079


def test_all_shares_together_do_not_overdraw_the_card():
    assert 4 * (memory_limit_mib(0.25, 16384) + CONTEXT_MIB) <= 16384


def test_a_share_of_a_mig_instance_is_refused_since_the_driver_does_not_tell_its_memory():
    run, _ = driver("", subprocess.CalledProcessError(6, "nvidia-smi"))
    instance = {"CUDA_VISIBLE_DEVICES": "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f"}
    with pytest.raises(UnavailableResourcesError, match=r"--id MIG-c6.*reserve whole GPUs"):
        gpu_memory_mib(run=run, environment=instance)


def test_several_cards_have_the_memory_of_the_smallest_that_is_used():
    run, _ = driver("81559, 480\n16384, 0\n8192, 0\n")

    assert [gpu_memory_mib(num, run=run, environment={}) for num in (1, 2)] == [81079, 16384]
