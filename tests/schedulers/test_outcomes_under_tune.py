"""Consistency of outcomes in Tune, results and Optuna, for every scheduler."""

import functools
import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from killed_driver import bring_up_to_date

from tune_tf.objective import Objective
from tune_tf.outcome import CONFIG_CHANGED_AT, STOP_REASON, Outcome
from tune_tf.space import Choice, Float, SearchSpace

LOSS = Objective("loss", "min")
LIMIT = 4
SPACE = SearchSpace({"optimizer": {"rate": Float(0.1, 1.0)}})
ENDINGS = ("good", "bad", "nan", "better", "raises", "worst")
VALUES = {"good": 2.0, "bad": 8.0, "nan": 1.0, "better": 1.5, "raises": 1.0, "worst": 9.0}

SETTINGS = {
    "fifo": {},
    "asha": {"reduction_factor": 2},
    "HyperBandScheduler": {"reduction_factor": 2},
    "HyperBandForBOHB": {"reduction_factor": 2},
    "MedianStoppingRule": {"min_samples_required": 2},
    "pausing": {"name": "MedianStoppingRule", "hard_stop": False, "min_samples_required": 2},
    "pbt": {"perturbation_interval": 2},
    "pb2": {"perturbation_interval": 2},
}
STOPPING = ("asha", "HyperBandScheduler", "HyperBandForBOHB", "MedianStoppingRule")


@pytest.fixture(autouse=True)
def by_value():
    """Send what stands in this file to Ray's workers whole: they cannot import tests."""
    from ray import cloudpickle

    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    yield
    cloudpickle.unregister_pickle_by_value(module)


def trainable():
    from ray import tune

    class Steps(tune.Trainable):
        def setup(self, config):
            self.config, self.steps = config, 0

        def step(self):
            self.steps += 1
            if self.config["ending"] == "raises" and self.steps == 2:
                raise RuntimeError("the user's code raised")
            if self.config["ending"] == "nan" and self.steps == 2:
                return {"loss": math.nan}
            return {"loss": VALUES[self.config["ending"]] / self.steps}

        def save_checkpoint(self, checkpoint_dir):
            Path(checkpoint_dir, "steps.json").write_text(json.dumps(self.steps))

        def load_checkpoint(self, checkpoint):
            self.steps = json.loads(Path(checkpoint, "steps.json").read_text())

        def reset_config(self, new_config):
            self.setup(new_config)
            return True

    return Steps


SCRIPTED = SearchSpace({"optimizer": {"rate": Float(0.1, 1.0)}, "ending": Choice(list(ENDINGS))})
POINTS = [
    {"optimizer": {"rate": (index + 1) / 10}, "ending": ending}
    for index, ending in enumerate(ENDINGS)
]


def sweep(tmp_path, scheduler, *, storage, count=6, **settings):
    from ray import tune

    from tune_tf.searchers import OptunaSearcher

    searcher = OptunaSearcher(
        SCRIPTED,
        LOSS,
        "random",
        seed=1,
        storage=storage,
        study_name="study",
        points_to_evaluate=POINTS,
    )
    return tune.run(
        trainable(),
        name="sweep",
        **{
            "search_alg": searcher,
            "scheduler": scheduler,
            "num_samples": count,
            "max_concurrent_trials": 3,
            "reuse_actors": True,
            "checkpoint_config": tune.CheckpointConfig(num_to_keep=scheduler.num_to_keep),
            "storage_path": str(tmp_path),
            "raise_on_failed_trial": False,
            "verbose": 0,
            **settings,
        },
    )


def make(name):
    from tune_tf.schedulers import scheduler

    settings = {"name": name, "epochs": LIMIT, **SETTINGS[name]}
    return scheduler(objective=LOSS, space=SPACE, **settings)


def states(storage):
    """Return the state of each Optuna trial by the id of its Tune trial."""
    import optuna

    trials = optuna.load_study(study_name="study", storage=storage).trials
    found = {trial.user_attrs["tune_trial_id"]: trial.state.name for trial in trials}
    assert len(found) == len(trials)
    return found


def assert_one_truth(analysis, storage):
    """Compare what Tune, a trial's last result and Optuna say of each trial's end."""
    in_optuna = states(storage)
    assert set(in_optuna) == {trial.trial_id for trial in analysis.trials}
    for trial in analysis.trials:
        reason = trial.last_result.get(STOP_REASON)
        outcome = Outcome.ERROR if trial.status == "ERROR" else Outcome(reason)
        assert (trial.status, in_optuna[trial.trial_id]) == (outcome.tune, outcome.optuna)


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """Return a function that runs a scheduler's sweep once, and returns what is left of it."""
    import optuna

    @functools.cache
    def run(name):
        storage = optuna.storages.InMemoryStorage()
        return sweep(tmp_path_factory.mktemp(name), make(name), storage=storage), storage

    return run


@pytest.mark.usefixtures("inline")
@pytest.mark.filterwarnings("ignore")  # PB2's process and Ray's calls of SciPy
@pytest.mark.parametrize("name", SETTINGS)
def test_tune_the_last_result_and_optuna_agree_on_every_end(name, swept):
    analysis, storage = swept(name)
    assert_one_truth(analysis, storage)
    reasons = [trial.last_result.get(STOP_REASON) for trial in analysis.trials]
    assert [trial.status for trial in analysis.trials].count("ERROR") == 1
    assert reasons.count("diverged") == 1
    assert ("pruned" in reasons) <= (name in STOPPING)
    assert {
        trial.last_result["training_iteration"]
        for trial in analysis.trials
        if trial.last_result.get(STOP_REASON) == "completed"
    } == {LIMIT}


@pytest.mark.usefixtures("inline")
def test_an_exploiting_trial_reports_when_its_config_changed(swept):
    analysis, _ = swept("pbt")
    changed = [trial for trial in analysis.trials if CONFIG_CHANGED_AT in trial.last_result]
    assert changed
    assert {trial.last_result[CONFIG_CHANGED_AT] for trial in changed} <= {2}
    rates = [trial.config["optimizer"]["rate"] for trial in analysis.trials]
    assert len(set(rates)) == len(rates)
    assert all(0.1 <= rate <= 1.0 for rate in rates)


def keeping(scheduler, path, die_at=None):
    """Return a callback that puts a scheduler into Tune's snapshots, and may kill the driver."""
    from ray.tune import Callback

    class Keep(Callback):
        results = 0

        def get_state(self):
            scheduler.save(path)
            return {"scheduler": path.read_bytes()}

        def set_state(self, state):
            path.write_bytes(state["scheduler"])
            scheduler.restore(path)

        def on_trial_result(self, iteration, trials, trial, result, **info):
            self.results += 1

        def on_step_end(self, trials, **info):
            if self.results == die_at:
                bring_up_to_date(trials[0])
                os.kill(os.getpid(), signal.SIGKILL)

    return Keep()


def begin_and_die(name, tmp_path, address, die_at):
    """Run a sweep in a process of its own, which is killed after some results."""
    import ray
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    ray.init(address=address, logging_level="ERROR", log_to_driver=False)
    scheduler, tmp_path = make(name), Path(tmp_path)
    dying = keeping(scheduler, tmp_path / "scheduler", die_at)
    sweep(tmp_path, scheduler, storage=f"sqlite:///{tmp_path}/study.db", callbacks=[dying])


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_a_population_that_is_killed_and_resumed_ends_each_trial_once(tmp_path, monkeypatch):
    """The simulation of the driver kills sweeps with the other schedulers."""
    import ray

    name = "pbt"

    monkeypatch.setenv("TUNE_GLOBAL_CHECKPOINT_S", "0")
    address = ray.get_runtime_context().gcs_address
    call = f"begin_and_die({name!r}, {str(tmp_path)!r}, {address!r}, die_at=8)"
    there = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    killed = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys; sys.path[:0] = {there}; from {__name__} import *; {call}",
        ],
        check=False,
        timeout=240,
    )
    assert killed.returncode == -signal.SIGKILL
    resumed, storage = make(name), f"sqlite:///{tmp_path}/study.db"
    keep = keeping(resumed, tmp_path / "scheduler")
    analysis = sweep(tmp_path, resumed, storage=storage, callbacks=[keep], resume=True)
    assert len(analysis.trials) == len(ENDINGS)
    assert_one_truth(analysis, storage)
