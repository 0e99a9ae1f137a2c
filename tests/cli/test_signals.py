"""Signals end a verb in order, and a closed terminal ends it without an error."""

import contextlib
import io
import logging
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
import typer

from tune_tf.cli import signals
from tune_tf.cli.console import exit_on_interrupt
from tune_tf.cli.signals import interrupt_on_signals
from tune_tf.errors import StoreUnavailableError, note_interrupt

VERB = """
import sys, time
import typer
from tune_tf import cli
from tune_tf.cli.console import echo, exit_on_interrupt

def wait():
    with exit_on_interrupt("no sweep was begun"):
        echo("waits")
        for _ in range(600):
            time.sleep(0.1)
            echo("goes on", err=True)

cli.app.command("wait")(wait)
sys.argv = ["tune-tf", "wait"]
cli.main()
"""


@pytest.fixture(autouse=True)
def usual_handlers():
    """Handle signals as a new process does: Ray and ``nohup`` change this for all that follows."""
    usual = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_DFL,
    }
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_interrupts_and_says_what_to_do(number, capsys, monkeypatch):
    monkeypatch.setattr(signals, "leave_terminal", lambda: None)
    with (
        pytest.raises(typer.Exit) as ended,
        interrupt_on_signals(),
        exit_on_interrupt("nothing"),
        note_interrupt("resume it"),
    ):
        signal.raise_signal(number)
    assert ended.value.exit_code == 130
    assert "interrupted: resume it" in capsys.readouterr().err


def test_sigterm_interrupts_where_ctrl_c_is_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in the background of a script
    try:
        with pytest.raises(KeyboardInterrupt), interrupt_on_signals():
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_interrupt_that_a_library_swallows_is_repeated_before_the_sweep():
    from tune_tf.cli.progress import run_in_terminal

    config = SimpleNamespace(name="sweep", budget=SimpleNamespace(num_samples=1), epochs=1)
    with interrupt_on_signals():
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            run_in_terminal(lambda callbacks: pytest.fail("it began"), config, as_json=False)


def test_an_ignored_hangup_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup
    try:
        with interrupt_on_signals():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_closed_terminal_ends_a_verb_in_order(tmp_path):
    master, terminal = os.openpty()
    start = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)"
    process = subprocess.Popen(
        [sys.executable, "-c", f"{start}\n{VERB}"],
        cwd=tmp_path,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    )
    os.close(terminal)
    text = b""
    while b"waits" not in text:
        text += os.read(master, 1000)
    os.close(master)
    assert process.wait(timeout=60) == 130


def test_an_error_that_ray_logs_is_a_line_without_a_traceback():
    from tune_tf.cli.progress import run_in_terminal

    def run(callbacks):
        try:
            raise FileNotFoundError("no such folder\nor file")
        except FileNotFoundError:
            logging.getLogger("ray.train").exception("Trial %s: not saved:", 3)
        raise StoreUnavailableError("lost")

    config = SimpleNamespace(name="lost", epochs=1, budget=SimpleNamespace(num_samples=1))
    ray_log, printed = logging.getLogger("ray"), io.StringIO()
    handler = logging.StreamHandler(printed)
    ray_log.addHandler(handler)
    try:
        with pytest.raises(StoreUnavailableError):
            run_in_terminal(run, config, as_json=False)
    finally:
        ray_log.removeHandler(handler)
    assert printed.getvalue() == "Trial 3: not saved: no such folder\n"
