"""Devices and threads are claimed once a process."""

import subprocess
import sys
import textwrap

import pytest

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


def test_devices_are_claimed_once_and_for_all():
    printed = in_a_process(
        """
        first = claim_devices(TrialResources(cpus=3), 2)
        print(first.names, first.num_replicas, first.on_cpu)
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


def test_devices_that_cannot_be_had_are_told_and_others_can_be_claimed_then():
    printed = in_a_process(
        """
        tf.constant(1.0) + 1
        for resources, num_replicas in (
            (TrialResources(cpus=2), 2), (TrialResources(gpus=1), 1), (TrialResources(), 1)
        ):
            try:
                print(claim_devices(resources, num_replicas).names)
            except UnavailableResourcesError as error:
                print(error)
        """
    )

    assert "2 replicas need 2 logical CPU devices, but TensorFlow was used" in printed[0]
    assert "reserved 1 GPU(s) for 1 replica(s), but TensorFlow sees" in printed[1]
    assert printed[2] == "('CPU:0',)"
