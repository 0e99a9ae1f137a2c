"""What ``run`` does with the batch that it trains while Ray starts."""

import contextlib
import logging
from subprocess import TimeoutExpired
from types import SimpleNamespace
from unittest import mock

import pytest

from tune_tf.cli.verbs import run as run_verb
from tune_tf.errors import InvalidSettingsError

RULED_OUT = InvalidSettingsError("no such metric")


@pytest.mark.parametrize(
    ("found", "address", "calls"),
    [
        ([["space.width: nothing reads it"]], None, ["plan", "cluster", "run"]),
        (TimeoutExpired("a batch", 20), None, ["plan", "cluster", "run"]),  # not waited for
        ([[]], "auto", ["cluster", "plan", "cluster", "run"]),  # planned on the cluster
        (RULED_OUT, None, ["plan", "cluster"]),
    ],
    ids=["warns", "slow", "on a cluster", "ruled out"],
)
def test_a_sweep_runs_after_its_batch_was_trained(found, address, calls, monkeypatch, caplog):
    order, process = [], mock.MagicMock()
    process.return_value.__enter__.return_value = process
    process.result.side_effect = found

    def called(name, result=None):
        return lambda *_, **__: order.append(name) or result

    monkeypatch.setattr("tune_tf.measure.dry_run.dry_run_process", process)
    monkeypatch.setattr("tune_tf.sweep.plan_sweep", called("plan"))
    monkeypatch.setattr("tune_tf.sweep.run_sweep", called("run"))
    connect = called("cluster", contextlib.nullcontext())
    monkeypatch.setattr("tune_tf.sweep.cluster.cluster", connect)
    monkeypatch.setattr("tune_tf.sweep.cluster.cluster_address", lambda _: address)
    config = SimpleNamespace(cluster=None)
    with contextlib.suppress(InvalidSettingsError), caplog.at_level(logging.WARNING):
        run_verb._run_checked(config, None, ())
    assert order == calls
    assert ("nothing reads it" in caplog.text) == (found == [["space.width: nothing reads it"]])
    process.return_value.__exit__.assert_called_once()
