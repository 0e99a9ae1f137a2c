"""Sweeps from the shell, as a user starts them."""

import contextlib
import io
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO
from unittest import mock

import psutil
import pytest
from terminal import ended_agent

ROOT = Path(__file__).parents[2]
_MARK = f"TUNE_TF_TEST_{os.getpid()}"  # in the environment of all that these tests start

SWEEP = """\
name: tiny
workload: tune_tf.workloads.digits:DigitsMLP
objective: {metric: val_accuracy, mode: max}
space:
  optimizer:     {choice: [adamw, sgd]}
  momentum:      {uniform: [0.0, 0.9], when: {optimizer: sgd}}
  learning_rate: {loguniform: [1.0e-4, 1.0e-1]}
  dropout:       {uniform: [0.1, 0.5]}
  width:         {choice: [16, 32]}
  batch_size:    64
seed: 3
epochs: 9
scheduler: {name: asha, grace_period: 1, reduction_factor: 3}
resources: {cpus: 1}
max_concurrent_trials: 1
budget: {num_samples: 4}
mlflow: {log_best_model: false}
"""
"""Of few trials, one after the other: what a sweep costs are the processes that it starts."""


@pytest.fixture(scope="session")
def command() -> Callable[..., "subprocess.Popen[str]"]:
    """Start ``scripts/sweep.py`` with arguments in a folder."""

    return partial(_start, ROOT / "scripts" / "sweep.py")


@pytest.fixture(scope="session")
def untrained() -> Callable[..., "subprocess.Popen[str]"]:
    """Start the same, with trials that train nothing: where the driver alone is the point."""
    return partial(_start, Path(__file__).with_name("untrained.py"))


def _unchecked(arguments: Sequence[str]) -> list[str]:
    """Return arguments with which ``run`` trains no batch before: one test is about that."""
    is_run = arguments[:1] == ("run",) and "--check" not in arguments
    return [*arguments, *(["--no-check"] if is_run else [])]


def _start(
    script: Path, *arguments: str, cwd: Path, output: "int | IO[bytes]" = subprocess.PIPE
) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, str(script), *_unchecked(arguments)],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        text=True,
        env={**os.environ, "COLUMNS": "120", _MARK: "1"},
    )


@pytest.fixture(scope="session")
def finished(
    command: Callable[..., "subprocess.Popen[str]"],
) -> Callable[..., tuple[int, str, str]]:
    """Run ``scripts/sweep.py`` to its end; return exit code, stdout and stderr."""

    def run(*arguments: str, cwd: Path, timeout_s: float = 240) -> tuple[int, str, str]:
        process = command(*arguments, cwd=cwd)
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=240)
            pytest.fail(f"sweep.py {' '.join(arguments)} did not end:\n{out}\n{err}")
        return process.returncode, out, err

    return run


@pytest.fixture(scope="session")
def verb() -> Callable[..., tuple[int, str, str]]:
    """Call the command line in this process; return exit code, stdout and stderr.

    A sweep runs on the cluster that this process is connected to: see ``ray_cluster``.
    """
    from tune_tf.cli import app
    from tune_tf.cli.console import exit_on_errors

    def call(*arguments: str, cwd: Path) -> tuple[int, str, str]:
        out, err = (io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(2))
        with (
            contextlib.chdir(cwd),
            mock.patch.dict(os.environ, COLUMNS="120"),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            pytest.raises(SystemExit) as ended,
            exit_on_errors(),
        ):
            app(_unchecked(arguments))
        told = [each.buffer.getvalue().decode() for each in (out, err)]
        return int(ended.value.code or 0), *told

    return call


@pytest.fixture(scope="session")
def write_sweep(empty_store: Path) -> Callable[[Path], Path]:
    """Write the file of a sweep of four short trials, beside a store of MLflow's that is made."""

    def write(folder: Path) -> Path:
        shutil.copy(empty_store, folder / "mlflow.db")
        path = folder / "tiny.yaml"
        path.write_text(SWEEP)
        return path

    return write


@pytest.fixture
def sweep_file(tmp_path: Path, write_sweep: Callable[[Path], Path]) -> Path:
    """A sweep of four short trials, beside a store of MLflow's that is made already."""
    return write_sweep(tmp_path)


@pytest.fixture(autouse=True)
def _no_orphans() -> Iterator[None]:
    """Fail if a test leaves a process behind that it started."""
    yield
    deadline = time.monotonic() + 90
    while (left := _started()) and time.monotonic() < deadline:
        for number, _ in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                ended_agent(psutil.Process(number))
        time.sleep(0.2)
    assert not left, f"processes left: {left}"


def _started() -> set[tuple[int, str]]:
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if _MARK.encode() in (folder / "environ").read_bytes():
                words = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                found.add((int(folder.name), words.decode(errors="replace")[:80]))
        except OSError:
            continue
    return found
