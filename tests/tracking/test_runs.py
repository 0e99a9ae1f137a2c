from pathlib import Path

import pytest

from tune_tf.tracking.names import TIME_TOTAL
from tune_tf.tracking.runs import SweepRuns, TrackedSweep
from tune_tf.tracking.writing.run_update import (
    PARENT,
    STOP_CAUSE_TAG,
    STOP_REASON_TAG,
    Report,
    RunUpdate,
)


@pytest.fixture
def open_runs(client, store_uri):
    """Open the sweep's runs as another driver process would."""

    def open_runs(client=client, **settings):
        return SweepRuns(client, TrackedSweep("s1", store_uri, "digits", **settings))

    return open_runs


def test_an_experiment_opens_as_one_of_model_training(client, open_runs):
    open_runs().write(RunUpdate(PARENT))
    tags = client.get_experiment_by_name("digits").tags
    assert tags["mlflow.experimentKind"] == "custom_model_development"


def result(trial_id, step, loss=1.0):
    metrics = {"loss": loss, TIME_TOTAL: float(step)}
    return RunUpdate(trial_id, 1000, reports=[Report(step, 1000 * step, metrics)])


def active(client):
    experiment = client.get_experiment_by_name("digits")
    return client.search_runs([experiment.experiment_id])


def test_more_than_mlflow_takes_in_a_batch_is_written_whole(client, open_runs):
    runs = open_runs()
    entry = RunUpdate(
        "t1",
        0,
        params={f"p{i}": str(i) for i in range(250)},
        tags={f"t{i}": str(i) for i in range(250)},
        reports=[Report(1, 0, {f"m{i}": float(i) for i in range(2500)})],
    )
    runs.write(entry)
    data = client.get_run(runs.run_ids["t1"]).data
    assert len(data.params) == 250
    assert len(data.metrics) == 2500
    assert data.tags["t249"] == "249"
    assert entry.size == 0


def test_a_run_of_a_forgotten_trial_with_other_params_is_replaced(client, open_runs):
    first = open_runs()
    first.write(RunUpdate("t1", 0, params={"lr": "0.1"}))
    second = open_runs(reopen=True)
    second.write(RunUpdate("t1", 0, params={"lr": "0.2"}, fresh=True))
    assert second.run_ids["t1"] != first.run_ids["t1"]
    assert {run.info.run_id for run in active(client)} == set(second.run_ids.values())


def test_a_param_that_changed_becomes_a_tag(client, open_runs):
    runs = open_runs()
    runs.write(RunUpdate(PARENT, 0, params={"best_lr": "0.1", "best_units": "8"}))
    runs.write(RunUpdate(PARENT, 0, params={"best_lr": "0.2", "best_units": "8"}))
    data = client.get_run(runs.run_ids[PARENT]).data
    assert data.params == {"best_lr": "0.1", "best_units": "8"}
    assert data.tags["best_lr"] == "0.2"


def test_a_file_lands_under_the_path_that_it_is_given(client, open_runs, tmp_path):
    (tmp_path / "made.html").write_text("a plot")
    runs = open_runs()
    made = str(tmp_path / "made.html")
    entry = RunUpdate(PARENT, 0, files={"report.html": made, "plots/made.html": made})
    runs.write(entry)
    run_id = runs.run_ids[PARENT]
    assert [file.path for file in client.list_artifacts(run_id)] == ["plots", "report.html"]
    for path in ("report.html", "plots/made.html"):
        assert Path(client.download_artifacts(run_id, path)).read_text() == "a plot"
    assert entry.size == 0


def test_of_a_batch_with_a_value_that_mlflow_refuses_the_rest_is_written(client, open_runs, caplog):
    runs = open_runs()
    metrics = {f"m{number}": float(number) for number in range(20)} | {"no*way": 1.0}
    entry = RunUpdate("t1", 0, tags={"ok": "1"}, reports=[Report(1, 0, metrics)], status="FINISHED")
    runs.write(entry)
    run = client.get_run(runs.run_ids["t1"])
    assert run.data.metrics.keys() == {f"m{number}" for number in range(20)}
    assert (run.data.tags["ok"], run.info.status) == ("1", "FINISHED")
    assert (runs.num_refused, entry.size) == (1, 0)
    assert "MLflow rejected a value" in caplog.text


def test_what_is_for_a_run_that_a_user_deleted_is_left_out_at_once(client, open_runs):
    runs = open_runs()
    runs.write(result("t1", 1))
    client.delete_run(runs.run_ids["t1"])
    reports = [Report(2, 0, report_of(3000).metrics)]
    entry = RunUpdate("t1", 0, tags={"a": "b"}, reports=reports, status="FINISHED")
    runs.write(entry)
    assert entry.size == 0
    assert runs.num_refused == 3000 + 2


def report_of(num_metrics):
    metrics = {f"m{number}": float(number) for number in range(num_metrics)}
    return Report(1, 1000, {TIME_TOTAL: 1.0, **metrics} if num_metrics < 3000 else metrics)


def test_a_partly_sent_long_report_is_completed(client, open_runs):
    whole = report_of(2500)
    first = dict(list(whole.metrics.items())[:1000])
    open_runs().write(
        RunUpdate("t1", 0, reports=[Report(1, 1000, first)])
    )  # and then it was killed

    again = open_runs(reopen=True)
    again.write(RunUpdate("t1", 0, reports=[whole]))

    run_id = again.run_ids["t1"]
    assert len(client.get_run(run_id).data.metrics) == 2501
    assert len(client.get_metric_history(run_id, "m0")) == 1


def test_each_run_has_the_data_set_of_its_sweep_once(client, store_uri, monkeypatch):
    dataset = {"name": "wine.csv", "digest": "ab12", "source_type": "local", "source": "{}"}
    sweep = TrackedSweep("s1", store_uri, "digits", dataset=dataset)
    failing, log_inputs = [ConnectionError("down")], client.log_inputs

    def fail_once(*arguments):
        if failing:
            raise failing.pop()
        log_inputs(*arguments)

    monkeypatch.setattr(client, "log_inputs", fail_once)
    runs = SweepRuns(client, sweep)
    with pytest.raises(ConnectionError):
        runs.write(RunUpdate("t1", 0))
    runs.write(RunUpdate("t1", 0))
    again = SweepRuns(client, TrackedSweep.from_dict(sweep.to_dict(), store_uri))
    again.write(RunUpdate("t1", 0, tags={"a": "b"}))
    for run_id in runs.run_ids.values():
        (data_set,) = client.get_run(run_id).inputs.dataset_inputs
        assert (data_set.dataset.name, data_set.dataset.digest) == ("wine.csv", "ab12")
        assert data_set.tags[0].value == "training"
    assert len(runs.run_ids) == len(again.run_ids) == 2


@pytest.mark.parametrize("name", ["../up", "a/b", "/root", "zürich #1"])
def test_an_experiment_of_any_name_has_its_artifacts_beside_the_database(
    client, tmp_path, monkeypatch, name
):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    runs = SweepRuns(client, TrackedSweep("s1", f"sqlite:///{tmp_path}/mlflow.db", name))
    runs.write(RunUpdate(PARENT, 0, texts={"sweep.yaml": "a: 1"}))
    (file,) = tmp_path.rglob("sweep.yaml")
    assert file.relative_to(tmp_path / "mlruns").parts[1:] == (
        runs.run_ids[PARENT],
        "artifacts",
        "sweep.yaml",
    )


def test_reopening_a_run_takes_back_how_it_ended(client, open_runs):
    first = open_runs()
    tags = {STOP_REASON_TAG: "interrupted", STOP_CAUSE_TAG: "ctrl-c"}
    first.write(RunUpdate("t1", 0, tags=tags, status="KILLED", end_ms=9))
    second = open_runs(reopen=True)
    second.write(RunUpdate("t1", 0, reopen=True))
    run = client.get_run(second.run_ids["t1"])
    assert run.info.status == "RUNNING"
    assert not {STOP_REASON_TAG, STOP_CAUSE_TAG} & run.data.tags.keys()


def test_settling_removes_runs_of_trials_made_after_the_last_snapshot(client, open_runs):
    first = open_runs()
    for trial_id in ("kept", "forgotten"):
        first.write(result(trial_id, 1))
    second = open_runs(reopen=True, trial_ids=frozenset({"kept"}))
    second.write(RunUpdate(PARENT, 0, trials=frozenset({"kept"}), status="FINISHED"))
    runs = {run.data.tags.get("tune_tf.trial_id", PARENT): run for run in active(client)}
    assert runs.keys() == {"kept", PARENT}
    assert runs["kept"].info.status == "KILLED"
    assert runs["kept"].data.tags[STOP_REASON_TAG] == "interrupted"
