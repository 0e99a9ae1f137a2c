"""What ``run`` does with the batch that it trains while Ray starts."""

import contextlib
import logging

import pytest

from tune_tf.cli.verbs import run as run_verb
from tune_tf.errors import InvalidSettingsError


class Process:
    """A process that has ended or not, and what it found."""

    def __init__(self, ends, found):
        self.ends = ends
        self.found = found
        self.is_open = False

    def __call__(self, plan):
        return self

    def __enter__(self):
        self.is_open = True
        return self

    def __exit__(self, *error):
        self.is_open = False

    def wait(self, timeout_s):
        assert self.is_open
        return self.ends

    def warnings(self):
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


@pytest.fixture
def run_checked(monkeypatch):
    """Return a function that runs a sweep which trains nothing, after a check by a process."""

    def run_checked(ends=True, found=(), address=None):
        process, ran, order = Process(ends, found), [], []

        def run_sweep(config, base_dir, callbacks, timeline):
            assert timeline == "trace.json"
            assert not process.is_open
            ran.append(config)
            return "result"

        monkeypatch.setattr("tune_tf.measure.dry_run.DryRunProcess", process)
        monkeypatch.setattr("tune_tf.sweep.plan_sweep", lambda *_, **__: order.append("plan"))
        monkeypatch.setattr("tune_tf.sweep.run_sweep", run_sweep)

        def connect(*_):
            order.append("cluster")
            return contextlib.nullcontext()

        monkeypatch.setattr("tune_tf.sweep.cluster.cluster", connect)
        monkeypatch.setattr("tune_tf.sweep.cluster.cluster_address", lambda _: address)

        class Config:
            cluster = None

        with contextlib.suppress(InvalidSettingsError):
            result = run_verb._run_checked(
                Config, None, contextlib.nullcontext, (), timeline="trace.json"
            )
            assert result == "result"
        assert not process.is_open
        assert order[0] == ("plan" if address is None else "cluster")
        return len(ran)

    return run_checked


def test_a_sweep_runs_after_its_batch_was_trained(run_checked, caplog):
    with caplog.at_level(logging.WARNING):
        assert run_checked(found=["space.width: nothing reads it"]) == 1
    assert "space.width: nothing reads it" in caplog.text


def test_a_batch_that_takes_long_is_not_waited_for(run_checked):
    assert run_checked(ends=False, found=InvalidSettingsError("never asked")) == 1


def test_a_sweep_on_a_cluster_is_planned_there(run_checked):
    assert run_checked(address="auto") == 1


def test_what_the_batch_rules_out_does_not_run(run_checked):
    assert run_checked(found=InvalidSettingsError("no such metric")) == 0
