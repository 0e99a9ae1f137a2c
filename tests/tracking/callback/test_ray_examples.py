"""Examples that come with Ray Tune, each with one part of ours in the place of Ray's."""

import pytest
from inline_actors import run_inline
from ray import tune
from ray.tune import schedulers
from ray.tune.examples import async_hyperband_example, hyperband_function_example, pbt_function
from store import Store

from tune_tf.objective import Objective
from tune_tf.schedulers import scheduler
from tune_tf.space import Choice, Float, SearchSpace

pytestmark = [pytest.mark.mlflow, pytest.mark.usefixtures("inline")]


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    """No example has to wait."""
    monkeypatch.setattr(async_hyperband_example.time, "sleep", lambda seconds: None)


ACCURACY = Objective("mean_accuracy", "max")
REWARD = Objective("episode_reward_mean", "max")
LOSS = Objective("mean_loss", "min")


def pbt(**parts):
    """The example ``pbt_function``."""
    return {
        "trainable": pbt_function.pbt_function,
        "scheduler": schedulers.PopulationBasedTraining(
            metric="mean_accuracy",
            mode="max",
            perturbation_interval=5,
            hyperparam_mutations={
                "lr": tune.uniform(0.0001, 0.02),
                "some_other_factor": [1, 2],
            },
        ),
        "stop": {"done": True, "training_iteration": 10},
        "num_samples": 4,
        "config": {"lr": 0.0001, "some_other_factor": 1, "checkpoint_interval": 5},
        "reuse_actors": True,
        **parts,
    }


def hyperband(**parts):
    """The example ``hyperband_function_example``."""
    return {
        "trainable": hyperband_function_example.train_func,
        "scheduler": schedulers.HyperBandScheduler(
            metric="episode_reward_mean", mode="max", max_t=9, reduction_factor=3
        ),
        "stop": {"training_iteration": 9},
        "num_samples": 4,
        "config": {"height": tune.uniform(0, 100)},
        **parts,
    }


def asha(**parts):
    """The example ``async_hyperband_example``."""
    return {
        "trainable": async_hyperband_example.easy_objective,
        "scheduler": schedulers.AsyncHyperBandScheduler(
            metric="mean_loss", mode="min", grace_period=2, max_t=8, reduction_factor=2
        ),
        "num_samples": 3,
        "config": {
            "steps": tune.grid_search([5, 100]),  # 5: no rung, where both could end a trial
            "width": tune.uniform(10, 100),
            "height": tune.uniform(0, 100),
        },
        **parts,
    }


def limit_of(trial):
    """Return what ``asha``'s function or scheduler ends a trial at."""
    return min(trial.config.get("steps", 10**6), 8)


@pytest.mark.parametrize("example", [pbt, hyperband, asha], ids=lambda it: it.__name__)
def test_rays_examples_are_tracked_by_our_callback(example, callback_of, client, tmp_path):
    parts = example(callbacks=[callback_of(objective=None)])
    trials = run_inline(parts.pop("trainable"), tmp_path, **parts)
    store = Store(client)
    states = {
        run.data.tags["tune_tf.trial_id"]: (run.info.status, run.data.tags["tune_tf.stop_reason"])
        for run in store.children
    }
    assert set(states) == {trial.trial_id for trial in trials}
    assert store.parent.info.status == "FINISHED"
    limits = {"pbt": lambda _: 10, "hyperband": lambda _: 9, "asha": limit_of}
    for trial in trials:
        ended_at = trial.last_result["training_iteration"]
        done = trial.last_result.get("mean_accuracy", 0) > 200  # as the example's function says
        full = done or ended_at >= limits[example.__name__](trial)
        expected = ("FINISHED", "completed") if full else ("KILLED", "pruned")
        assert states[trial.trial_id] == expected


@pytest.mark.parametrize(
    ("example", "name", "objective", "settings"),
    [
        (pbt, "pbt", ACCURACY, {"perturbation_interval": 5, "max_t": 10}),
        (hyperband, "HyperBandScheduler", REWARD, {"reduction_factor": 3, "max_t": 9}),
        (asha, "asha", LOSS, {"grace_period": 2, "reduction_factor": 2, "max_t": 8}),
    ],
    ids=["pbt", "hyperband", "asha"],
)
def test_rays_examples_run_with_our_scheduler_and_rays_mlflow_callback(
    example, name, objective, settings, tmp_path, client, store_uri, inline
):
    from ray.air.integrations.mlflow import MLflowLoggerCallback

    space = SearchSpace({"lr": Float(0.0001, 0.02), "some_other_factor": Choice([1, 2])})
    ours = scheduler(name, objective, space=space, **settings)
    # Ray's callback fails where a trial's config changes (ray#27783), and takes long elsewhere.
    theirs = [MLflowLoggerCallback(store_uri, experiment_name="digits")] if name == "asha" else []
    parts = example(scheduler=ours, callbacks=theirs)
    trials = run_inline(parts.pop("trainable"), tmp_path, **parts)
    assert {trial.status for trial in trials} == {"TERMINATED"}
    for trial in trials:
        ended_at = trial.last_result["training_iteration"]
        limit = min(settings["max_t"], limit_of(trial) if name == "asha" else 10**6)
        told = trial.last_result["stop_reason"]
        assert told == ("completed" if ended_at >= limit else "pruned")
    if theirs:
        runs = client.search_runs([client.get_experiment_by_name("digits").experiment_id])
        assert [run.info.status for run in runs] == ["FINISHED"] * len(trials)
