"""The memory of a card that trials share, as the driver tells it."""

import subprocess

import pytest

from tune_tf.errors import UnavailableResourcesError
from tune_tf.training.devices import CONTEXT_MIB, gpu_memory_mib, memory_limit_mib


def driver(told, error=None):
    """Return a stand-in of ``subprocess.run``."""

    def run(command, **options):
        if error:
            raise error
        return subprocess.CompletedProcess(command, 0, stdout=told, stderr="")

    return run


@pytest.mark.parametrize(
    ("told", "error"),
    [
        pytest.param("", FileNotFoundError("nvidia-smi"), id="no driver"),
        pytest.param("", subprocess.TimeoutExpired("nvidia-smi", 30), id="hangs"),
        pytest.param("", subprocess.CalledProcessError(6, "nvidia-smi"), id="part of a card"),
        pytest.param("[N/A]\n", None, id="no number"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_a_card_of_unknown_size_is_refused(told, error):
    environment = {"CUDA_VISIBLE_DEVICES": "3,5"}
    with pytest.raises(
        UnavailableResourcesError, match=r"share cannot be enforced.*nvidia-smi.*--id 3"
    ):
        gpu_memory_mib(run=driver(told, error), environment=environment)


def test_several_cards_have_the_memory_of_the_smallest_without_what_the_driver_keeps():
    run = driver("81559, 480\n16384, 0\n8192, 0\n")

    assert [gpu_memory_mib(num, run=run, environment={}) for num in (1, 2)] == [81079, 16384]


def test_all_shares_together_do_not_overdraw_the_card():
    assert 4 * (memory_limit_mib(0.25, 16384) + CONTEXT_MIB) <= 16384
