"""Devices and threads are claimed once a process; GPUs are fakes here."""

import os
import subprocess
import sys
import textwrap

import pytest

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


@pytest.mark.slow
def test_missing_devices_are_reported_and_others_can_still_be_claimed():
    printed = in_a_process(
        """
        tf.constant(1.0) + 1
        for resources, num_devices in (
            (TrialResources(cpus=2), 2), (TrialResources(gpus=1), 1), (TrialResources(), 1)
        ):
            try:
                print(claim_devices(resources, num_devices).names)
            except UnavailableResourcesError as error:
                print(error)
        """
    )

    assert "the trial needs 2 logical CPU devices, but TensorFlow was already used" in printed[0]
    assert "reserved 1 GPU(s) for 1 device(s), but TensorFlow sees" in printed[1]
    assert printed[2] == "('CPU:0',)"


@pytest.fixture
def claim(monkeypatch):
    """Return a function that claims devices where there are fake GPUs, and what it then set."""
    import tensorflow as tf

    from tune_tf.training import devices

    claimed = {}
    calls = []

    def noting(name, error=None):
        def note(*arguments):
            calls.append((name, *arguments))
            if error:
                raise error

        return note

    def claim(
        resources, num_replicas=1, *, gpus=("gpu0", "gpu1"), card_mib=16384, used=False, then=None
    ):
        error = RuntimeError("cannot be modified after being initialized") if used else None
        monkeypatch.setattr(devices, "_claimed", claimed)
        monkeypatch.setattr(devices, "gpu_memory_mib", lambda: card_mib)
        monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: list(gpus))
        for owner, name in (
            (tf.config, "set_visible_devices"),
            (tf.config, "set_logical_device_configuration"),
            (tf.config.experimental, "set_memory_growth"),
        ):
            monkeypatch.setattr(owner, name, noting(name, error))
        for name in ("intra", "inter"):
            monkeypatch.setattr(
                tf.config.threading, f"set_{name}_op_parallelism_threads", lambda count: None
            )
        if then is not None:
            then()
        return devices.claim_devices(resources, num_replicas), calls

    return claim


def test_the_gpus_that_ray_reserved_are_seen_whatever_the_environment_says(claim, monkeypatch):
    import ray

    from tune_tf.training import devices

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")  # as with Ray's ..._NOSET_...
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    monkeypatch.setattr(devices, "is_actor", lambda: True)
    monkeypatch.setattr(ray, "get_gpu_ids", lambda: [3, 1])
    claim(TrialResources(gpus=2), 2)

    assert os.environ["CUDA_VISIBLE_DEVICES"] == "3,1"
    assert os.environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"  # that of nvidia-smi and of Ray


def test_a_trial_without_gpus_sees_none(claim):
    devices, calls = claim(TrialResources())

    assert (devices.names, devices.memory_bytes) == (("CPU:0",), None)
    assert calls == [("set_visible_devices", [], "GPU")]


@pytest.mark.parametrize(
    ("names", "cards", "told"),
    [
        pytest.param(("CPU:0", "CPU:1"), "2,3", "CPU:0, CPU:1", id="cpus"),
        pytest.param(("GPU:0", "GPU:1"), "2,3", "GPU:0, GPU:1 of cards 2,3", id="cards"),
        pytest.param(("GPU:0",), "", "GPU:0", id="all cards"),
    ],
)
def test_devices_are_told_with_the_numbers_of_the_cards(monkeypatch, names, cards, told):
    from tune_tf.training.devices import Devices

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", cards)

    assert str(Devices(names)) == told


def test_whole_gpus_give_memory_as_it_is_needed(claim):
    devices, calls = claim(TrialResources(gpus=2), 2)

    assert devices.names == ("GPU:0", "GPU:1")
    assert devices.memory_bytes == 16384 * 2**20
    assert calls == [("set_memory_growth", gpu, True) for gpu in ("gpu0", "gpu1")]


def test_whole_gpus_of_unknown_size_are_taken_too(claim, monkeypatch):
    from tune_tf.training import devices

    def unknown():
        raise UnavailableResourcesError("nvidia-smi failed")

    claimed, _ = claim(
        TrialResources(gpus=1),
        then=lambda: monkeypatch.setattr(devices, "gpu_memory_mib", unknown),
    )

    assert (claimed.names, claimed.memory_bytes) == (("GPU:0",), None)


def test_a_fraction_of_a_gpu_is_a_limit_of_memory(claim):
    devices, calls = claim(TrialResources(gpus=0.25))

    ((name, gpu, (logical,)),) = calls
    assert devices.names == ("GPU:0",)
    assert devices.memory_bytes == logical.memory_limit * 2**20
    assert (name, gpu) == ("set_logical_device_configuration", "gpu0")
    assert logical.memory_limit == 16384 * 0.25 - 768


def test_devices_claimed_again_are_not_set_again(claim):
    claim(TrialResources(gpus=0.5))
    devices, calls = claim(TrialResources(gpus=0.5), used=True)

    assert devices.names == ("GPU:0",)
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param({"gpus": ()}, r"sees 0 .*CUDA_VISIBLE_DEVICES.*nvidia-smi", id="invisible"),
        pytest.param(
            {"card_mib": 2048}, r"-256 MiB are left, .* reserve at least 0\.50", id="small"
        ),
        pytest.param(
            {"used": True}, "limit of 3328 MiB could not be set: .* already used", id="used"
        ),
    ],
)
def test_a_fraction_that_cannot_be_enforced_is_refused(claim, arguments, message):
    with pytest.raises(UnavailableResourcesError, match=message):
        claim(TrialResources(gpus=0.25), **arguments)
