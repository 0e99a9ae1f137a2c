"""The MLflow callback in sweeps that Ray Tune runs."""

from pathlib import Path

import pytest
from store import Store

from tune_tf.tracking import SweepDetails


@pytest.fixture
def sweep(request, callback_of, client, tmp_path):
    """Run a sweep with Ray Tune, in this process or on a cluster; return what MLflow has of it."""
    from ray import tune

    request.getfixturevalue(getattr(request, "param", "inline"))

    def sweep(trainable, config, *, callback=None, more=(), **settings):
        callback = callback or callback_of()
        settings = {"storage_path": str(tmp_path / "ray"), "name": "exp", "verbose": 0, **settings}
        tune.run(
            trainable,
            config=config,
            callbacks=[callback, *more],
            raise_on_failed_trial=False,
            **settings,
        )
        return Store(client)

    return sweep


def function_trainable(num_results=3):
    def train(config):
        from ray import tune

        for step in range(1, num_results + 1):
            tune.report({"val_accuracy": config["rate"] * step, "eval": {"auc": 0.5}, "note": "x"})

    return train


def class_trainable(at_step=lambda step: None):
    from ray import tune

    class Scripted(tune.Trainable):
        def setup(self, config):
            self.rate = config["rate"]

        def step(self):
            at_step(self.iteration + 1)
            return {"val_accuracy": self.rate * (self.iteration + 1)}

        def save_checkpoint(self, checkpoint_dir):
            return {"rate": self.rate}

        def load_checkpoint(self, checkpoint):
            pass

        def reset_config(self, new_config):
            self.rate = new_config["rate"]
            return True

    return Scripted


@pytest.mark.parametrize(
    "sweep",
    [
        "inline",
        pytest.param(
            "ray_cluster", id="on a cluster", marks=[pytest.mark.cluster, pytest.mark.slow]
        ),
    ],
    indirect=True,
)
def test_a_sweep_is_a_parent_and_a_child_for_each_trial(sweep, callback_of):
    from ray import tune

    callback = callback_of(
        details=SweepDetails(texts={"sweep.yaml": "name: digits"}), tags={"team": "blue"}
    )
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
    assert child.data.metrics.keys() == {"val_accuracy", "eval/auc", "system/time_total_s"}
    assert store.points(child, "val_accuracy") == [(1, 2.0), (2, 4.0), (3, 6.0)]
    assert {run.data.tags["team"] for run in [*store.children, store.parent]} == {"blue"}
    assert callback.run_ids() == {
        run.data.tags["tune_tf.trial_id"]: run.info.run_id for run in store.children
    }
    assert callback.parent_run_id == store.parent.info.run_id


def test_the_parent_shows_the_best_trial_and_the_counts(sweep, callback_of):
    from ray import tune

    callback = callback_of(details=SweepDetails(texts={"sweep.yaml": "name: digits"}))
    config = {"rate": tune.grid_search([1.0, 2.0])}
    store = sweep(
        class_trainable(),
        config,
        callback=callback,
        stop={"training_iteration": 3},
        checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=True),
    )
    parent, best = store.parent, store.child(rate=2.0)
    assert parent.info.status == "FINISHED"
    assert parent.info.run_name == "exp"
    assert parent.data.params == {"best_rate": "2.0"}
    assert parent.data.metrics == {
        "best/val_accuracy": 6.0,
        "val_accuracy": 6.0,
        "trials/completed": 2.0,
        "trials/ended": 2.0,
    }
    assert parent.data.tags["tune_tf.best_config"] == '{"rate": 2.0}'
    assert "/exp/" in parent.data.tags["tune_tf.best_checkpoint"]
    assert parent.data.tags["tune_tf.best_trial_id"] == best.data.tags["tune_tf.trial_id"]
    values = [value for _, value in store.points(parent, "best/val_accuracy")]
    assert values == sorted(set(values))
    assert store.points(parent, "val_accuracy") == store.points(parent, "best/val_accuracy")
    files = store.client.list_artifacts(parent.info.run_id)
    assert {file.path for file in files} == {"sweep.yaml", "environment"}


def test_each_way_of_ending_has_its_state_and_reason(sweep):
    from ray import tune
    from ray.tune.schedulers import ASHAScheduler

    def train(config):
        for step in range(1, 5):
            tune.report({"val_accuracy": config["rate"] * step})
            if config["rate"] == 4.0:
                raise ValueError("boom at last")

    asha = ASHAScheduler(
        metric="val_accuracy", mode="max", grace_period=2, reduction_factor=2, max_t=100
    )
    rates = [3.0, 1.0, 4.0, float("nan")]
    config = {"rate": tune.grid_search(rates)}
    store = sweep(train, config, scheduler=asha, max_concurrent_trials=1)
    assert store.states("rate") == {
        "3.0": ("FINISHED", "completed"),
        "1.0": ("KILLED", "pruned"),
        "4.0": ("FAILED", "error"),
        "nan": ("FAILED", "diverged"),
    }
    assert store.points(store.child(rate=1.0), "val_accuracy") == [(1, 1.0), (2, 2.0)]
    assert store.parent.data.metrics["best/val_accuracy"] == 12.0
    failed = store.child(rate=4.0)
    assert failed.data.tags["tune_tf.stop_cause"].endswith("ValueError: boom at last")
    text = Path(store.client.download_artifacts(failed.info.run_id, "error.txt")).read_text()
    assert text.startswith("Failure # 1")
    assert "raise ValueError" in text


@pytest.fixture
def recorded():
    """A Tune callback that keeps what trials reported: id to steps and values."""
    from ray import tune

    class Recorded(tune.Callback):
        def __init__(self):
            self.points = {}

        def on_trial_result(self, iteration, trials, trial, result, **info):
            point = result["training_iteration"], result["val_accuracy"]
            self.points.setdefault(trial.trial_id, []).append(point)

    return Recorded()


@pytest.fixture
def population(sweep, recorded):
    """A sweep of two trials that Ray's PBT clones at each step."""
    from ray import tune
    from ray.tune.schedulers import PopulationBasedTraining

    pbt = PopulationBasedTraining(
        time_attr="training_iteration",
        metric="val_accuracy",
        mode="max",
        perturbation_interval=1,
        hyperparam_mutations={"rate": lambda: 5.0, "kind": ["slow", "fast"]},
        resample_probability=1.0,
        quantile_fraction=0.5,
    )
    return sweep(
        class_trainable(),
        {"rate": tune.grid_search([1.0, 2.0]), "kind": "plain"},
        scheduler=pbt,
        stop={"training_iteration": 8},
        reuse_actors=True,
        more=[recorded],
    )


def test_under_pbt_reports_stand_once_and_changed_parameters_are_curves(population, recorded):
    states = {run.data.tags["tune_tf.stop_reason"] for run in population.children}
    assert states == {"completed"}
    changed = [run for run in population.children if "hp/rate" in run.data.metrics]
    assert changed
    for run in changed:
        values = [value for _, value in population.points(run, "hp/rate")]
        assert set(values) == {5.0}
        assert run.data.params["kind"] == "plain"
        assert run.data.tags["hp/kind"] in ("slow", "fast")
    ids = {run.data.tags["tune_tf.trial_id"] for run in population.children}
    cloned = {run.data.tags.get("tune_tf.cloned_from") for run in population.children}
    assert ids & cloned
    for run in population.children:
        reported = recorded.points[run.data.tags["tune_tf.trial_id"]]
        assert population.points(run, "val_accuracy") == sorted(reported)
