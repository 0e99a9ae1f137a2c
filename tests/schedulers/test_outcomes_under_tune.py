"""Consistency of outcomes in Tune, results and Optuna, for every scheduler."""

import functools
import json
import math
from pathlib import Path

import pytest

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


def sweep(tmp_path, scheduler):
    """Run a sweep; return Tune's trials, and Optuna's states by their ids."""
    from ray import tune

    from tune_tf.searchers import OptunaSearcher

    searcher = OptunaSearcher(SCRIPTED, LOSS, "random", seed=1, points_to_evaluate=POINTS)
    trials = tune.run(
        trainable(),
        name="sweep",
        search_alg=searcher,
        scheduler=scheduler,
        num_samples=len(POINTS),
        max_concurrent_trials=3,
        reuse_actors=True,
        storage_path=str(tmp_path),
        raise_on_failed_trial=False,
        verbose=0,
    ).trials
    told = searcher.study.trials
    states = {trial.user_attrs["tune_trial_id"]: trial.state.name for trial in told}
    assert len(states) == len(told)
    return trials, states


def make(name):
    from tune_tf.schedulers import scheduler

    settings = {"name": name, "epochs": LIMIT, **SETTINGS[name]}
    return scheduler(objective=LOSS, space=SPACE, **settings)


def assert_one_truth(trials, in_optuna):
    """Compare what Tune, a trial's last result and Optuna say of each trial's end."""
    assert set(in_optuna) == {trial.trial_id for trial in trials}
    for trial in trials:
        reason = trial.last_result.get(STOP_REASON)
        outcome = Outcome.ERROR if trial.status == "ERROR" else Outcome(reason)
        assert (trial.status, in_optuna[trial.trial_id]) == (outcome.tune, outcome.optuna)


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """Return a function that runs a scheduler's sweep once, and returns what is left of it."""

    @functools.cache
    def run(name):
        return sweep(tmp_path_factory.mktemp(name), make(name))

    return run


@pytest.mark.usefixtures("inline")
@pytest.mark.filterwarnings("ignore")  # PB2's process and Ray's calls of SciPy
@pytest.mark.parametrize("name", SETTINGS)
def test_tune_the_last_result_and_optuna_agree_on_every_end(name, swept):
    trials, in_optuna = swept(name)
    assert_one_truth(trials, in_optuna)
    reasons = [trial.last_result.get(STOP_REASON) for trial in trials]
    assert [trial.status for trial in trials].count("ERROR") == 1
    assert reasons.count("diverged") == 1
    assert ("pruned" in reasons) <= (name in STOPPING)
    assert {
        trial.last_result["training_iteration"]
        for trial in trials
        if trial.last_result.get(STOP_REASON) == "completed"
    } == {LIMIT}


@pytest.mark.usefixtures("inline")
def test_an_exploiting_trial_reports_when_its_config_changed(swept):
    trials, _ = swept("pbt")
    changed = [trial for trial in trials if CONFIG_CHANGED_AT in trial.last_result]
    assert changed
    assert {trial.last_result[CONFIG_CHANGED_AT] for trial in changed} <= {2}
    rates = [trial.config["optimizer"]["rate"] for trial in trials]
    assert len(set(rates)) == len(rates)
    assert all(0.1 <= rate <= 1.0 for rate in rates)
