"""Devices and threads are claimed once a process; GPUs are fakes here."""

import contextlib
import os
import subprocess
import sys
import textwrap

import pytest
import tensorflow as tf

from tune_tf.errors import UnavailableResourcesError
from tune_tf.resources import TrialResources

pytestmark = pytest.mark.tf

PREPARE = """
    import logging
    from tune_tf.errors import UnavailableResourcesError
    from tune_tf.resources import TrialResources
    from tune_tf.training.devices import claim_devices
    import tensorflow as tf
"""


def in_a_process(code):
    """Return what some lines of Python print, without the noise of TensorFlow."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PREPARE) + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


@pytest.mark.slow
def test_devices_are_claimed_once_and_for_all():
    printed = in_a_process(
        """
        first = claim_devices(TrialResources(cpus=3), 2)
        print(first.names, len(first.names), first.on_cpu)
        print(tf.config.threading.get_intra_op_parallelism_threads())
        print(len(tf.config.list_logical_devices("CPU")))
        print(claim_devices(TrialResources(cpus=3), 2) == first)
        try:
            claim_devices(TrialResources(cpus=1), 1)
        except UnavailableResourcesError as error:
            print(error)
        """
    )

    assert printed[:4] == ["('CPU:0', 'CPU:1') 2 True", "3", "2", "True"]
    assert "cannot change to" in printed[4]


CARDS = (16384, 16384, 8192)


@pytest.fixture
def claim(monkeypatch):
    """Return a function that claims devices where there are GPUs of so many MiB."""
    from fake_gpus import FakeGpus

    from tune_tf.training import devices

    monkeypatch.setattr(devices, "_claimed", {})
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with contextlib.ExitStack() as stack:

        def claim(resources, num_devices=1, *, gpus=CARDS, visible=None, used=False):
            if visible is not None:
                monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
            stack.close()
            stack.enter_context(FakeGpus(*gpus, reserved_mib=480))
            if used:
                tf.config.list_logical_devices()
            return devices.claim_devices(resources, num_devices)

        yield claim


def limits():
    """Return the memory limit of each GPU that TensorFlow is told to use."""
    return [
        [each.memory_limit for each in tf.config.get_logical_device_configuration(gpu) or ()]
        for gpu in tf.config.get_visible_devices("GPU")
    ]


def test_gpus_are_numbered_as_by_ray(claim, monkeypatch):
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    claimed = claim(TrialResources(gpus=2), 2, visible="2,1")

    assert str(claimed) == "GPU:0, GPU:1 of cards 2,1"
    assert os.environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"  # that of nvidia-smi and of Ray


def test_a_trial_without_gpus_sees_none(claim):
    devices = claim(TrialResources())

    assert (devices.names, devices.memory_bytes, str(devices)) == (("CPU:0",), None, "CPU:0")
    assert tf.config.list_logical_devices("GPU") == []


@pytest.mark.parametrize(
    ("visible", "num_devices", "smallest"),
    [(None, 2, 16384), ("0,2", 2, 8192), ("2,0", 1, 8192)],
)
def test_whole_gpus_give_memory_as_it_is_needed(claim, visible, num_devices, smallest):
    devices = claim(TrialResources(gpus=num_devices), num_devices, visible=visible)

    assert devices.names == ("GPU:0", "GPU:1")[:num_devices]
    assert devices.memory_bytes == (smallest - 480) * 2**20
    gpus = tf.config.get_visible_devices("GPU")
    grow = tf.config.experimental.get_memory_growth
    assert [grow(gpu) for gpu in gpus] == [True] * num_devices  # and no other is touched
    assert limits() == [[]] * num_devices


def test_whole_gpus_of_unknown_size_are_taken_too(claim, monkeypatch):
    monkeypatch.setattr("tune_tf.training.devices._QUERY", ("false",))
    claimed = claim(TrialResources(gpus=1))

    assert (claimed.names, claimed.memory_bytes) == (("GPU:0",), None)


@pytest.mark.parametrize(
    ("visible", "card_mib"),
    [
        (None, 16384),
        ("2", 8192),
        ("GPU-00000001-0000-4000-8000-000000000000,2", 16384),
    ],
)
def test_a_fraction_of_a_gpu_is_a_limit_of_memory_on_the_card_that_it_is_of(
    claim, visible, card_mib
):
    devices = claim(TrialResources(gpus=0.25), visible=visible)

    limit = int(0.25 * (card_mib - 480)) - 768
    assert devices.names == ("GPU:0",)
    assert devices.memory_bytes == limit * 2**20
    assert limits() == [[limit]]  # no other card is used, whose memory TensorFlow would take


def test_devices_claimed_again_are_not_set_again(claim):
    first = claim(TrialResources(gpus=0.5))

    assert claim(TrialResources(gpus=0.5), used=True) == first


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param({"gpus": ()}, r"sees 0 .*CUDA_VISIBLE_DEVICES.*nvidia-smi", id="none"),
        pytest.param({"visible": "7,0"}, r"sees 0 .*CUDA_VISIBLE_DEVICES='7,0'", id="invisible"),
        pytest.param(
            {"gpus": (2528,)}, r"-256 MiB are left, .* reserve at least 0\.50", id="small"
        ),
        pytest.param(
            {"used": True}, "limit of 3208 MiB could not be set: .* already used", id="used"
        ),
    ],
)
def test_a_fraction_that_cannot_be_enforced_is_refused(claim, arguments, message):
    with pytest.raises(UnavailableResourcesError, match=message):
        claim(TrialResources(gpus=0.25), **arguments)
