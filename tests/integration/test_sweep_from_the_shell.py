import json
import signal
from pathlib import Path

import keras
import pytest
from record_and_mlflow import assert_stopped, assert_truth, parent_run
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from terminal import until

from tune_tf.inspection import SweepView
from tune_tf.record import SweepHistory, recorded_results
from tune_tf.sweep_folder import SweepFolder
from tune_tf.workloads.digits import DigitsMLP

pytestmark = [pytest.mark.cluster]


@pytest.mark.usefixtures("ray_cluster")
def test_a_sweep_ends_with_each_trial_alike_in_record_and_mlflow(verb, sweep_file, tmp_path):
    def done(*arguments):
        code, out, err = verb(*arguments, cwd=tmp_path)
        assert code == 0, err
        return out, err

    settings = ("max_concurrent_trials=2", "keep_checkpoints=2", "tensorboard=true")
    out, _ = done("run", str(sweep_file), *settings)
    assert "Best trial" in out
    assert "mlflow ui --backend-store-uri sqlite:///mlflow.db" in out
    out, err = done("resume", "tiny", "--json")
    assert "has ended: there is nothing to resume" in err
    result = json.loads(out)
    folder = Path(result["path"])
    trials = assert_truth(folder)
    assert len(trials) == sum(result["trials"].values()) == 4
    assert {trial.reason for trial in trials.values()} == set(result["trials"])
    best = result["best"]
    value = best["metrics"]["val_accuracy"]
    parent = parent_run(folder)
    assert parent.info.status == "FINISHED"
    assert parent.data.metrics["best/val_accuracy"] == pytest.approx(value)
    assert parent.data.tags["tune_tf.best_trial_id"] == best["trial_id"]
    assert parent.data.tags["tune_tf.best_checkpoint"] == best["checkpoint"]
    assert "tune_tf.best_model" not in parent.data.tags  # it was not asked for
    assert Path(best["checkpoint"]).is_dir()
    assert len({path.parent for path in folder.glob("trial_*/checkpoint_*")}) == 2  # the best
    _assert_that_tensorboard_has_curves_and_configs(folder)

    status = json.loads(done("status", "tiny", "--json")[0])
    assert (status["state"], status["trials"]) == ("ended", result["trials"])
    page = Path(done("report", "tiny")[0].strip()).read_text()
    assert "val_accuracy" in page
    assert page.rstrip().endswith("</html>")
    done("export", "tiny", "--output", "best.keras")
    x, y = DigitsMLP().load_data(best["config"]).validation
    _, accuracy = keras.models.load_model(tmp_path / "best.keras").evaluate(x, y, verbose=0)
    assert accuracy == pytest.approx(value, abs=1e-6)


PAIRINGS = {
    "pbt": (
        "searcher.sampler=QMCSampler",
        "epochs=6",
        "scheduler={name: pbt, perturbation_interval: 2, quantile_fraction: 0.5}",
        "max_concurrent_trials=2",
    ),
    "two objectives": (
        "searcher.sampler=nsga2",
        "objective=[{metric: loss, mode: min}, {metric: val_accuracy, mode: max}]",
    ),
}


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("settings", PAIRINGS.values(), ids=PAIRINGS.keys())
def test_a_pairing_of_sampler_and_scheduler_ends_alike_in_record_and_mlflow(
    verb, sweep_file, tmp_path, settings
):
    code, out, err = verb("run", str(sweep_file), "--json", *settings, cwd=tmp_path)

    assert code == 0, err
    result = json.loads(out)
    trials = assert_truth(Path(result["path"]))
    assert len(trials) == sum(result["trials"].values())
    assert result["trials"]["completed"] >= 1
    assert result["best"]["number"] in range(len(trials))
    assert result["pareto_front"]


def _second_trial_saved(folder: Path) -> Path | None:
    """Return the folder of the sweep once a trial has ended, and the next has a checkpoint."""
    saved = list(folder.glob("sweeps/*/trial_00001*/checkpoint_*/trial.npz"))
    return saved[0].parents[2] if saved else None


ONE_STRUCTURE = (
    "space={learning_rate: {loguniform: [1.0e-4, 1.0e-1]}, dropout: {uniform: [0.1, 0.5]}, "
    "optimizer: adamw, momentum: 0.0, width: 16, batch_size: 64}"
)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize(
    ("blow", "code", "how"),
    [(signal.SIGINT, 130, "verb"), (signal.SIGKILL, -signal.SIGKILL, "finished")],
    ids=["ctrl-c", "kill -9"],
)
def test_a_sweep_that_was_stopped_goes_on_and_ends_as_if_it_had_not_been(
    command, request, sweep_file, tmp_path, blow, code, how
):
    resume = request.getfixturevalue(how)
    settings = (
        "scheduler={name: fifo}",
        "epochs=20",
        "checkpoint_interval_s=0.1",
        ONE_STRUCTURE,
    )
    process = command("run", str(sweep_file), *settings, cwd=tmp_path)
    folder = until(lambda: _second_trial_saved(tmp_path), process=process)
    process.send_signal(blow)
    out, err = process.communicate(timeout=240)

    assert process.returncode == code, err
    trials = SweepHistory.read(folder).trials.values()
    over = {trial.number for trial in trials if not trial.goes_on}
    if blow is not signal.SIGKILL:
        assert "tune-tf resume" in out
        assert_stopped(folder)
        assert parent_run(folder).info.status == "KILLED"
    assert over

    results = {number: recorded_results(folder, number) for number in over}
    code, out, err = resume("resume", "tiny", "--json", cwd=tmp_path)

    assert code == 0, err
    assert len(assert_truth(folder)) == 4
    assert parent_run(folder).info.status == "FINISHED"
    for number in over:
        assert recorded_results(folder, number) == results[number]  # none was run again
    assert SweepFolder.open("tiny", tmp_path / "sweeps").path == folder


def _assert_that_tensorboard_has_curves_and_configs(folder: Path) -> None:
    for trial in SweepView.open(folder).trials:
        lines = recorded_results(folder, trial.number)
        losses = {line["training_iteration"]: line["loss"] for line in lines}
        events = EventAccumulator(str(trial.folder), size_guidance={"scalars": 0}).Reload()
        points = events.Scalars("ray/tune/loss")
        assert {point.step: point.value for point in points} == pytest.approx(losses)
        assert "_hparams_/session_start_info" in events.PluginTagToContent("hparams")


BAD = {
    "unknown key": ("searcher={sampler: tpee}", "tpe"),
    "log of zero": ("space.learning_rate.loguniform=[0, 1]", "learning_rate"),
    "more gpus than there are": ("resources={cpus: 1, gpus: 1}", "GPU"),
    "more cpus than there are": ("resources={cpus: 4096}", "4096"),
    "no such workload": ("workload=tune_tf.workloads.digits:DigitsMPL", "DigitsMLP"),
}


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize(("setting", "told"), BAD.values(), ids=BAD.keys())
def test_wrong_settings_are_told_before_any_trial(verb, sweep_file, tmp_path, setting, told):
    code, _, err = verb("run", str(sweep_file), setting, cwd=tmp_path)

    assert code == 2
    assert told in err
    assert "Traceback" not in err
    assert not list(tmp_path.glob("sweeps/*/trial_*"))


@pytest.mark.slow
def test_a_wrong_metric_is_refused_before_a_trial_starts(verb, sweep_file, tmp_path, monkeypatch):
    monkeypatch.setattr("tune_tf.cli.verbs.run._PATIENCE_S", 240)  # a busy machine is no fault
    text = sweep_file.read_text().replace("metric: val_accuracy", "metric: val_acuracy")
    sweep_file.write_text(text)
    line = 1 + text[: text.index("val_acuracy")].count("\n")

    code, _, err = verb("run", str(sweep_file), "--check", cwd=tmp_path)

    assert code == 2
    assert f"line {line}: objective: there is no metric 'val_acuracy'; did you mean" in err
    assert not (tmp_path / "sweeps").exists()


WORKLOAD = """
from tune_tf.workloads.digits import DigitsMLP

class Failing(DigitsMLP):
    def build_model(self, config):
        raise ValueError("no such activation")
"""


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_a_workload_that_raises_fails_its_trials_and_says_why(verb, sweep_file, tmp_path):
    (tmp_path / "mine.py").write_text(WORKLOAD)
    settings = ("workload=mine.py:Failing", "budget.num_samples=1")
    code, out, err = verb("run", str(sweep_file), *settings, cwd=tmp_path)

    assert code == 1, err
    assert "no such activation" in out
    trials = assert_truth(next((tmp_path / "sweeps").iterdir()))
    assert {trial.reason for trial in trials.values()} == {"error"}
