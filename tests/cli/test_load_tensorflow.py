"""TensorFlow in the process of the command line: its lines on stderr, and GPUs."""

import os
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from fake_gpus import FakeGpus

from tune_tf.cli import main
from tune_tf.cli.verbs.models import load_tensorflow

LINES = """WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
I0000 00:00:17956.639 16744 cudart_stub.cc:31] Could not find cuda drivers on your machine, GPU ...
E0000 00:00:17956.004 16779 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error
E0000 00:00:17956.005 16779 file_system.cc:9] the disk is broken
"""


def write_lines(*errors):
    os.write(2, LINES.encode())
    for error in errors:
        raise error


@pytest.mark.parametrize("errors", [[], [RuntimeError("no instruction AVX")]], ids=str)
def test_lines_about_gpus_are_dropped_and_others_kept(errors, monkeypatch, capfd):
    config = SimpleNamespace(list_physical_devices=lambda: write_lines(*errors))
    monkeypatch.setitem(sys.modules, "tensorflow", SimpleNamespace(config=config))
    with pytest.raises(RuntimeError, match="AVX") if errors else nullcontext():
        load_tensorflow()
    os.write(2, b"afterwards\n")
    err = capfd.readouterr().err
    assert err == f"{LINES.splitlines()[-1]}\nafterwards\n"


@pytest.mark.tf
def test_tensorflow_sees_no_gpu_in_the_process_of_the_command_line(monkeypatch):
    import tensorflow as tf

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(sys, "argv", ["tune-tf", "--version"])
    with FakeGpus(4096):
        with pytest.raises(SystemExit):
            main()
        assert tf.config.list_physical_devices("GPU")
        assert tf.config.list_logical_devices("GPU") == []
