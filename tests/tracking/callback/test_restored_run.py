"""A driver of plain Tune that is killed with ``kill -9`` and restored: one run for each trial."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from inline_actors import InlineActorManager, run_inline
from killed_driver import bring_up_to_date
from ray import tune
from ray.tune.schedulers import ASHAScheduler
from ray.tune.stopper import FunctionStopper
from store import Store

pytestmark = pytest.mark.mlflow

LIMIT = 7


class Steps(tune.Trainable):
    def setup(self, config):
        self.rate = config["rate"]

    def step(self):
        return {"val_accuracy": self.rate * (self.iteration + 1)}

    def save_checkpoint(self, checkpoint_dir):
        return {"rate": self.rate}

    def load_checkpoint(self, checkpoint):
        pass


class Kill(tune.Callback):
    """Kills the driver after some results."""

    def __init__(self, results):
        self.left = results

    def on_trial_result(self, iteration, trials, trial, result, **info):
        self.left -= 1

    def on_step_end(self, iteration, trials, **info):
        if self.left == 0:
            bring_up_to_date(trials[0])
            os.kill(os.getpid(), signal.SIGKILL)


def sweep(folder, callbacks, **settings):
    return run_inline(
        Steps,
        folder,
        scheduler=ASHAScheduler(metric="val_accuracy", mode="max", max_t=9, reduction_factor=3),
        callbacks=callbacks,
        stop=FunctionStopper(lambda _, result: result["training_iteration"] >= LIMIT),
        config={"rate": tune.grid_search([4.0, 1.0, 3.0, 5.0])},
        checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1),
        checkpoint_period=0,
        **settings,
    )


def begin_and_die(folder, uri, results):
    """Run the sweep in a process of its own, which is killed."""
    import ray
    from ray.tune.execution import tune_controller

    from tune_tf.tracking import MLflowCallback

    ray.cluster_resources = lambda: {"CPU": 2.0}
    tune_controller.RayActorManager = InlineActorManager
    from ray.train._internal import storage

    storage._get_ray_train_session_dir = lambda: f"{folder}/killed"
    sweep(folder, [MLflowCallback(uri, "digits"), Kill(results)])


@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize("results", [3, pytest.param(14, marks=pytest.mark.slow)])
def test_after_a_kill_each_trial_has_one_run_and_none_runs(
    results, tmp_path, store_uri, callback_of, client
):
    there = [str(folder) for folder in Path(__file__).parents[:3]]
    call = f"begin_and_die({str(tmp_path)!r}, {store_uri!r}, {results})"
    code = f"import sys; sys.path[:0] = {there}; from {__name__} import *; {call}"
    killed = subprocess.run([sys.executable, "-c", code], check=False, timeout=240)
    assert killed.returncode == -signal.SIGKILL
    callback = callback_of(objective=None)
    trials = sweep(tmp_path, [callback, Kill(-1)], resume_config=tune.ResumeConfig())
    store = Store(client)
    assert store.parent.info.status == "FINISHED"
    assert {run.data.tags["tune_tf.trial_id"]: run.info.run_id for run in store.children} == (
        callback.run_ids()
    )
    assert set(callback.run_ids()) == {trial.trial_id for trial in trials}
    for run in store.children:
        steps = [step for step, _ in store.points(run, "val_accuracy")]
        assert steps == list(range(1, len(steps) + 1))
        full = len(steps) == LIMIT
        assert run.data.tags["tune_tf.stop_reason"] == ("completed" if full else "pruned")
        assert run.info.status == ("FINISHED" if full else "KILLED")
