"""The MLflow callback, its hooks driven by hand."""

import pytest
from hooks import report, start
from store import Store

from tune_tf.errors import InvalidSettingsError
from tune_tf.outcome import Outcome


def test_an_interrupted_sweep_leaves_no_run_running(callback_of, trial_of, client):
    callback = callback_of()
    callback.setup()
    trials = [trial_of("running"), trial_of("stopped"), trial_of("waiting", status="PENDING")]
    start(callback, *trials[:2])
    report(callback, trials[0], 1)
    trials[1].set_status("TERMINATED")  # as Tune's own cleaning up does
    callback.on_experiment_end(trials)
    callback.on_experiment_end(trials)
    store = Store(client)
    reasons = {run.data.tags["tune_tf.stop_reason"] for run in store.children}
    assert (len(store.children), reasons) == (2, {"interrupted"})
    assert {run.info.status for run in store.children} == {"KILLED"}
    assert store.parent.info.status == "KILLED"
    assert store.parent.data.params == {}


def test_a_trial_that_the_time_budget_ended_before_it_started_has_no_run(
    callback_of, trial_of, client
):
    callback = callback_of()
    callback.setup()
    trial = trial_of("starting", status="PENDING")
    callback.on_step_end(1, [trial])
    trial.set_status("TERMINATED")
    callback.on_step_end(2, [trial])
    callback.on_experiment_end([trial])
    store = Store(client)
    assert callback.outcome_tracker.outcomes == {"starting": Outcome.OUT_OF_BUDGET}
    assert (store.parent.info.status, store.children) == ("FINISHED", [])


def test_a_result_carries_the_id_of_its_run_to_the_searcher(callback_of, trial_of, client):
    callback = callback_of()
    callback.setup()
    trial = trial_of("t1")
    start(callback, trial)
    callback.flush()
    result = report(callback, trial, 1, done=True)
    callback.on_experiment_end([trial])
    (child,) = Store(client).children
    assert result["mlflow_run_id"] == child.info.run_id


def test_a_store_that_cannot_be_opened_does_not_end_the_sweep(
    callback_of, trial_of, caplog, monkeypatch
):
    from tune_tf.tracking import run_writer as module

    monkeypatch.setattr(module, "connect", _unreachable)
    monkeypatch.setattr(module, "BackgroundWriter", _hasty(module.BackgroundWriter))
    callback = callback_of()
    callback.setup()
    trial = trial_of("t1")
    start(callback, trial)
    report(callback, trial, 1)
    callback.on_experiment_end([trial])
    assert "training continues: no route to host" in caplog.text
    assert "values could not be written to MLflow" in caplog.text


def _hasty(writer_class):
    def writer(open_sink, spool):
        return writer_class(open_sink, spool, linger_s=0.0, delays_s=(0.0,), patience_s=0.0)

    return writer


def test_what_cannot_be_attached_is_a_warning(callback_of, caplog, monkeypatch, tmp_path):
    from tune_tf.tracking import run_writer

    callback = callback_of()
    callback.setup()
    callback.on_experiment_end([])
    monkeypatch.setattr(run_writer, "connect", _unreachable)
    monkeypatch.setattr(run_writer, "BackgroundWriter", _hasty(run_writer.BackgroundWriter))
    callback.attach({"page.html": tmp_path / "page.html"})
    assert "no route to host" in caplog.text


def _unreachable(uri):
    raise ConnectionError("no route to host")


@pytest.mark.parametrize("name", ["", "x" * 257, "two\nlines", " padded"])
def test_a_name_that_no_experiment_can_have_is_refused(name):
    from tune_tf.tracking import MLflowCallback

    expected = "experiment_name must be 1 to 256 printable characters"
    with pytest.raises(InvalidSettingsError, match=expected):
        MLflowCallback("sqlite:///mlflow.db", name)
