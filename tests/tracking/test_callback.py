import copy
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tune_tf.errors import InvalidSettingsError
from tune_tf.objective import Objective
from tune_tf.outcome import STOP_REASON

pytestmark = pytest.mark.ray

ACCURACY = Objective("val_accuracy", "max")


@pytest.fixture
def callback_of(store_uri):
    def callback_of(**settings):
        from tune_tf.tracking import MLflowCallback

        settings = {"experiment_name": "digits", "objective": ACCURACY, **settings}
        return MLflowCallback(store_uri, **settings)

    return callback_of


@pytest.fixture
def sweep(ray_cluster, callback_of, client, tmp_path):
    """Run a sweep with Ray Tune and return what MLflow has of it."""
    from ray import tune

    def sweep(trainable, config, *, callback=None, **settings):
        callback = callback or callback_of()
        settings = {"storage_path": str(tmp_path / "ray"), "name": "exp", "verbose": 0, **settings}
        tune.run(
            trainable,
            config=config,
            callbacks=[callback],
            raise_on_failed_trial=False,
            **settings,
        )
        return Store(client)

    return sweep


class Store:
    """What a reader of the MLflow store sees of its only sweep."""

    def __init__(self, client):
        self.client = client
        experiment = client.get_experiment_by_name("digits")
        runs = client.search_runs([experiment.experiment_id])
        self.parents = [run for run in runs if "tune_tf.trial_id" not in run.data.tags]
        self.children = [run for run in runs if "tune_tf.trial_id" in run.data.tags]

    @property
    def parent(self):
        (parent,) = self.parents
        return parent

    def child(self, **params):
        wanted = {key: str(value) for key, value in params.items()}.items()
        (child,) = [run for run in self.children if wanted <= run.data.params.items()]
        return child

    def states(self, param):
        return {
            run.data.params[param]: (run.info.status, run.data.tags.get("tune_tf.stop_reason"))
            for run in self.children
        }

    def points(self, run, key):
        history = self.client.get_metric_history(run.info.run_id, key)
        return sorted((metric.step, metric.value) for metric in history)


def function_trainable(num_results=3):
    def train(config):
        from ray import tune

        for step in range(1, num_results + 1):
            tune.report({"val_accuracy": config["rate"] * step, "eval": {"auc": 0.5}, "note": "x"})

    return train


def class_trainable(fails_at=0, seconds=0.0):
    from ray import tune

    class Scripted(tune.Trainable):
        def setup(self, config):
            self.rate = config["rate"]

        def step(self):
            import time

            time.sleep(seconds)
            if self.iteration + 1 == fails_at:
                raise ValueError("boom at last")
            return {"val_accuracy": self.rate * (self.iteration + 1)}

        def save_checkpoint(self, checkpoint_dir):
            return {"rate": self.rate}

        def load_checkpoint(self, checkpoint):
            pass

        def reset_config(self, new_config):
            self.rate = new_config["rate"]
            return True

    return Scripted


def test_a_sweep_is_a_parent_and_a_child_for_each_trial(sweep, callback_of):
    from ray import tune

    callback = callback_of(artifacts={"sweep.yaml": "name: digits"}, tags={"team": "blue"})
    config = {"rate": tune.grid_search([1.0, 2.0]), "opt": {"name": "sgd"}}
    store = sweep(function_trainable(), config, callback=callback)
    assert store.states("rate") == {
        "1.0": ("FINISHED", "completed"),
        "2.0": ("FINISHED", "completed"),
    }
    child = store.child(rate=2.0)
    assert child.data.params == {"rate": "2.0", "opt/name": "sgd"}
    assert child.data.tags["mlflow.parentRunId"] == store.parent.info.run_id
    assert child.data.tags["tune_tf.trial_name"] == child.info.run_name
    assert child.data.metrics.keys() == {"val_accuracy", "eval/auc", "tune/time_total_s"}
    assert store.points(child, "val_accuracy") == [(1, 2.0), (2, 4.0), (3, 6.0)]
    assert {run.data.tags["team"] for run in [*store.children, store.parent]} == {"blue"}
    assert callback.run_ids() == {
        run.data.tags["tune_tf.trial_id"]: run.info.run_id for run in store.children
    }
    assert callback.parent_run_id == store.parent.info.run_id


def test_the_parent_shows_the_best_trial_and_the_counts(sweep, callback_of):
    from ray import tune

    callback = callback_of(artifacts={"sweep.yaml": "name: digits"})
    config = {"rate": tune.grid_search([1.0, 2.0])}
    store = sweep(class_trainable(), config, callback=callback, stop={"training_iteration": 3})
    parent, best = store.parent, store.child(rate=2.0)
    assert parent.info.status == "FINISHED"
    assert parent.info.run_name == "exp"
    assert parent.data.params == {"best_rate": "2.0"}
    assert parent.data.metrics == {"best/val_accuracy": 6.0, "trials/completed": 2.0}
    assert parent.data.tags["tune_tf.best_trial_id"] == best.data.tags["tune_tf.trial_id"]
    note = parent.data.tags["mlflow.note.content"]
    assert "2 trials (2 completed), 6 results. Best val_accuracy 6 in Scripted_" in note
    values = [value for _, value in store.points(parent, "best/val_accuracy")]
    assert values == sorted(set(values))
    (file,) = store.client.list_artifacts(parent.info.run_id)
    assert file.path == "sweep.yaml"


def test_the_best_checkpoint_is_named(sweep):
    from ray import tune

    checkpoints = tune.CheckpointConfig(checkpoint_at_end=True)
    store = sweep(
        class_trainable(),
        {"rate": 1.0},
        stop={"training_iteration": 2},
        checkpoint_config=checkpoints,
    )
    assert "/exp/" in store.parent.data.tags["tune_tf.best_checkpoint"]


def test_what_rays_asha_stops_is_pruned_and_the_rest_completed(sweep):
    from ray import tune
    from ray.tune.schedulers import ASHAScheduler

    asha = ASHAScheduler(
        metric="val_accuracy", mode="max", grace_period=1, reduction_factor=2, max_t=100
    )
    store = sweep(
        class_trainable(),
        {"rate": tune.grid_search([2.0, 1.0])},
        scheduler=asha,
        stop={"training_iteration": 4},
        max_concurrent_trials=1,
    )
    assert store.states("rate") == {"2.0": ("FINISHED", "completed"), "1.0": ("KILLED", "pruned")}
    assert store.points(store.child(rate=1.0), "val_accuracy") == [(1, 1.0)]


@pytest.mark.slow
def test_what_hyperband_stops_while_paused_is_pruned(sweep):
    from ray import tune
    from ray.tune.schedulers import HyperBandScheduler

    hyperband = HyperBandScheduler(metric="val_accuracy", mode="max", max_t=9, reduction_factor=3)
    store = sweep(
        class_trainable(),
        {"rate": tune.grid_search([float(rate) for rate in range(9)])},
        scheduler=hyperband,
        stop={"training_iteration": 9},
    )
    assert set(store.states("rate").values()) == {
        ("FINISHED", "completed"),
        ("KILLED", "pruned"),
    }
    assert store.states("rate")["8.0"] == ("FINISHED", "completed")


def test_an_error_is_kept_with_its_cause_and_text(sweep):
    store = sweep(class_trainable(fails_at=2), {"rate": 1.0})
    (child,) = store.children
    assert (child.info.status, child.data.tags["tune_tf.stop_reason"]) == ("FAILED", "error")
    assert child.data.tags["tune_tf.stop_cause"].endswith("ValueError: boom at last")
    text = Path(store.client.download_artifacts(child.info.run_id, "error.txt")).read_text()
    assert text.startswith("Failure # 1")
    assert "raise ValueError" in text
    assert store.parent.info.status == "FAILED"


def test_a_trial_that_fails_before_it_starts_has_a_failed_run(sweep):
    from ray import tune

    class Broken(tune.Trainable):
        def setup(self, config):
            raise RuntimeError("no data")

    store = sweep(Broken, {"rate": 1.0})
    assert store.states("rate") == {"1.0": ("FAILED", "error")}


def test_a_retried_trial_stands_once_with_every_step_once(sweep, tmp_path):
    from ray import tune

    marker = tmp_path / "failed"

    def train(config):
        for step in range(1, 5):
            tune.report({"val_accuracy": float(step)})
            if step == 2 and not marker.exists():
                marker.touch()
                raise ValueError("once")

    store = sweep(train, {"rate": 1.0}, max_failures=1)
    assert store.states("rate") == {"1.0": ("FINISHED", "completed")}
    assert [step for step, _ in store.points(store.children[0], "val_accuracy")] == [1, 2, 3, 4]


def test_a_diverged_trial_fails_and_is_never_the_best(sweep):
    from ray import tune

    def train(config):
        for _ in range(2):
            tune.report({"val_accuracy": config["rate"]})

    store = sweep(train, {"rate": tune.grid_search([float("nan"), 1.0])})
    assert store.states("rate") == {"nan": ("FAILED", "diverged"), "1.0": ("FINISHED", "completed")}
    assert store.parent.data.metrics["best/val_accuracy"] == 1.0


def test_trials_that_ran_out_of_the_time_budget_are_killed_and_told_apart(sweep):
    store = sweep(class_trainable(seconds=0.1), {"rate": 1.0}, time_budget_s=3)
    assert store.states("rate") == {"1.0": ("KILLED", "out_of_budget")}
    assert store.parent.info.status == "FINISHED"


def test_the_searcher_sees_why_a_trial_stopped(sweep):
    from ray.tune.search import Searcher

    reasons = {}

    class Recording(Searcher):
        def suggest(self, trial_id):
            return {"rate": 1.0}

        def on_trial_complete(self, trial_id, result=None, error=False):
            reasons[trial_id] = result.get(STOP_REASON)

    sweep(
        class_trainable(),
        {},
        search_alg=Recording(metric="val_accuracy", mode="max"),
        stop={"training_iteration": 2},
        num_samples=1,
    )
    assert list(reasons.values()) == ["completed"]


def test_pbt_runs_clean_and_changed_hyperparameters_are_metrics(sweep):
    from ray import tune
    from ray.tune.schedulers import PopulationBasedTraining

    pbt = PopulationBasedTraining(
        time_attr="training_iteration",
        metric="val_accuracy",
        mode="max",
        perturbation_interval=1,
        hyperparam_mutations={"rate": lambda: 5.0},
        resample_probability=1.0,
        quantile_fraction=0.5,
    )
    store = sweep(
        class_trainable(),
        {"rate": tune.grid_search([1.0, 2.0])},
        scheduler=pbt,
        stop={"training_iteration": 6},
        reuse_actors=True,
    )
    assert {status for status, _ in store.states("rate").values()} == {"FINISHED"}
    changed = [run for run in store.children if "hp/rate" in run.data.metrics]
    assert changed
    assert all(run.data.metrics["hp/rate"] == 5.0 for run in changed)


def test_importing_and_setting_up_do_not_load_mlflow(tmp_path):
    code = (
        "import sys, tune_tf.tracking as t; assert 'ray' not in sys.modules; t.MLflowCallback;"
        "assert not any(name.split('.')[0] in ('mlflow', 'tensorflow') for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, env=_environment())


def _environment():
    root = str(Path(__file__).parents[2])
    return {**os.environ, "PYTHONPATH": root}


def test_a_callback_not_yet_started_can_be_copied_and_pickled(callback_of):
    callback = callback_of(sweep_id="s1")
    assert copy.deepcopy(callback).sweep_id == "s1"
    assert pickle.loads(pickle.dumps(callback)).sweep_id == "s1"


def test_a_tracking_uri_that_cannot_work_is_refused_at_once():
    from tune_tf.tracking import MLflowCallback

    with pytest.raises(InvalidSettingsError, match="scheme 'redis'"):
        MLflowCallback("redis://host")


# The hooks, driven by hand.


@pytest.fixture
def trial_of(tmp_path):
    """Make Tune's own trial, without a trainable."""
    from ray.train._internal.storage import StorageContext
    from ray.tune.experiment import Trial

    def trial_of(trial_id, rate=1.0, status="RUNNING", last_result=None):
        storage = StorageContext(str(tmp_path / "ray"), "exp")
        trial = Trial(
            "scripted", stub=True, trial_id=trial_id, config={"rate": rate}, storage=storage
        )
        trial.set_status(status)
        trial.run_metadata.last_result = last_result or {}
        return trial

    return trial_of


def report(callback, trial, step, **more):
    result = {"val_accuracy": trial.config["rate"] * step, "training_iteration": step, **more}
    result = {"done": False, "time_total_s": float(step), **result}
    callback.on_trial_result(1, [trial], trial, result)
    trial.run_metadata.last_result = result
    return result


def start(callback, *trials):
    for trial in trials:
        callback.on_trial_start(1, list(trials), trial)


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


def test_a_stamp_that_is_there_is_kept(callback_of, trial_of):
    callback = callback_of()
    callback.setup()
    trial = trial_of("t1")
    start(callback, trial)
    result = report(callback, trial, 1, done=True, **{STOP_REASON: "diverged"})
    callback.on_experiment_end([trial])
    assert result[STOP_REASON] == "diverged"


def test_a_resumed_sweep_goes_on_in_its_runs(callback_of, trial_of, client):
    first = callback_of()
    first.setup()
    trial = trial_of("t1")
    start(first, trial)
    report(first, trial, 1)
    first.flush()
    state = pickle.loads(pickle.dumps(first.get_state()))
    first.on_experiment_end([trial])

    second = callback_of()
    second.set_state(state)
    second.setup()
    trial = trial_of("t1", last_result=trial.last_result)
    start(second, trial)
    report(second, trial, 2, done=True)
    second.on_trial_complete(1, [trial], trial)
    trial.set_status("TERMINATED")
    second.on_experiment_end([trial])

    store = Store(client)
    assert second.parent_run_id == first.parent_run_id == store.parent.info.run_id
    assert store.states("rate") == {"1.0": ("KILLED", "pruned")}
    assert store.parent.data.metrics["trials/pruned"] == 1.0
    assert store.parent.data.metrics["trials/interrupted"] == 0.0
    assert [step for step, _ in store.points(store.children[0], "val_accuracy")] == [1, 2]
    assert store.parent.info.status == "FINISHED"


def test_after_a_kill_with_a_stale_state_every_trial_has_one_run(callback_of, trial_of, client):
    first = callback_of()
    first.setup()
    old, late, lost = trial_of("old"), trial_of("late", 2.0), trial_of("lost", 3.0)
    start(first, old)
    report(first, old, 1)
    stale = first.get_state()
    start(first, late, lost)
    for trial in (old, late, lost):
        report(first, trial, 2)
    first.flush()  # and then the process is killed: no hook is called any more

    second = callback_of()
    second.set_state(stale)
    second.setup()
    old, late = trial_of("old", last_result={"training_iteration": 1}), trial_of("late", 2.0)
    start(second, old, late)
    for trial in (old, late):
        for step in (2, 3):
            report(second, trial, step)
        trial.run_metadata.last_result["done"] = True
        second.on_trial_complete(1, [old, late], trial)
        trial.set_status("TERMINATED")
    second.on_experiment_end([old, late])

    store = Store(client)
    assert store.states("rate") == {
        "1.0": ("FINISHED", "completed"),
        "2.0": ("FINISHED", "completed"),
    }
    assert [step for step, _ in store.points(store.child(rate=1.0), "val_accuracy")] == [1, 2, 3]
    assert [step for step, _ in store.points(store.child(rate=2.0), "val_accuracy")] == [2, 3]
    assert store.parent.info.status == "FINISHED"


def test_what_a_killed_driver_had_not_written_is_written_by_the_resume(
    callback_of, trial_of, client, monkeypatch
):
    first = callback_of()
    first.setup()
    over, going = trial_of("over"), trial_of("going", 2.0)
    start(first, over, going)
    report(first, over, 1)
    first.flush()
    gate = threading.Event()
    hang = "tune_tf.tracking.runs.SweepRuns.write"
    monkeypatch.setattr(hang, lambda runs, entry: gate.wait())
    for trial in (over, going):
        report(first, trial, 2)
    over.run_metadata.last_result["done"] = True
    first.on_trial_complete(1, [over, going], over)
    over.set_status("TERMINATED")
    state = pickle.loads(pickle.dumps(first.get_state()))  # and then the process is killed
    monkeypatch.undo()

    second = callback_of()
    second.set_state(state)
    second.setup()
    start(second, going)
    report(second, going, 3)
    going.run_metadata.last_result["done"] = True
    second.on_trial_complete(1, [over, going], going)
    going.set_status("TERMINATED")
    second.on_experiment_end([over, going])
    gate.set()

    store = Store(client)
    assert set(store.states("rate").values()) == {("FINISHED", "completed")}
    assert [step for step, _ in store.points(store.child(rate=1.0), "val_accuracy")] == [1, 2]
    assert [step for step, _ in store.points(store.child(rate=2.0), "val_accuracy")] == [2, 3]


def test_the_same_sweep_id_in_a_new_process_reopens_the_parent(callback_of, client):
    for _ in range(2):
        callback = callback_of(sweep_id="s1")
        callback.setup()
        callback.on_experiment_end([])
    assert Store(client).parent.data.tags["tune_tf.sweep_id"] == "s1"


def test_a_second_sweep_with_the_same_callback_has_its_own_runs(callback_of, client):
    callback = callback_of()
    for _ in range(2):
        callback.setup()
        callback.on_experiment_end([])
    assert len(Store(client).parents) == 2


def test_a_store_that_cannot_be_opened_does_not_end_the_sweep(
    callback_of, trial_of, caplog, monkeypatch
):
    from tune_tf.tracking import callback as module

    def unreachable(uri):
        raise ConnectionError("no route to host")

    monkeypatch.setattr(module, "connect", unreachable)
    monkeypatch.setattr(module, "Writer", _hasty(module.Writer))
    callback = callback_of()
    callback.setup()
    trial = trial_of("t1")
    start(callback, trial)
    report(callback, trial, 1)
    callback.on_experiment_end([trial])
    assert "training goes on: no route to host" in caplog.text
    assert "values could not be written to MLflow" in caplog.text


def _hasty(writer_class):
    def writer(open_sink):
        return writer_class(open_sink, linger_s=0.0, delays_s=(0.0,))

    return writer
