"""Each Optuna trial of plain ``tune.run`` names its MLflow run, however short the trial was."""

import pytest
from inline_actors import run_inline
from ray import tune
from ray.tune.search import SearchGenerator

from tune_tf.objective import Objective
from tune_tf.schedulers import scheduler
from tune_tf.searchers import OptunaSearcher
from tune_tf.tracking import run_writer

pytestmark = pytest.mark.mlflow

LOSS = Objective("loss", "min")
SCRIPTS = ("good", "bad", "sets up badly", "raises", "done at once", "worse")


class Short(tune.Trainable):
    def setup(self, config):
        self.config = config
        if config["script"] == "sets up badly":
            raise RuntimeError("no data")

    def step(self):
        script = self.config["script"]
        if script == "raises":
            raise RuntimeError("boom")
        loss = {"good": 1.0, "bad": 8.0}.get(script, 9.0)
        return {"loss": loss, "done": script == "done at once"}

    def save_checkpoint(self, checkpoint_dir):
        return {}

    def load_checkpoint(self, checkpoint):
        pass


def config_of(trial):
    trial.suggest_float("rate", 0.1, 1.0)
    return {"script": SCRIPTS[trial.number % len(SCRIPTS)]}


def sweep(tmp_path, callback, name="asha", count=12):
    searcher = OptunaSearcher(config_of, LOSS, "random", seed=1)
    trials = run_inline(
        Short,
        tmp_path,
        scheduler=scheduler(name, LOSS, max_t=3, reduction_factor=2),
        callbacks=[callback],
        search_alg=SearchGenerator(searcher),
        num_samples=count,
    )
    named = {
        trial.user_attrs["tune_trial_id"]: trial.user_attrs.get("mlflow_run_id")
        for trial in searcher.study.trials
    }
    return trials, named


@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize("name", ["asha", "HyperBandScheduler"])
def test_each_trial_names_its_run(name, tmp_path, callback_of, client):
    callback = callback_of(objective=LOSS)
    trials, named = sweep(tmp_path, callback, name)
    assert named == callback.run_ids()
    assert len(named) == len(trials) == 12
    for trial_id, run_id in named.items():
        assert client.get_run(run_id).data.tags["tune_tf.trial_id"] == trial_id


@pytest.mark.usefixtures("inline")
def test_a_store_that_is_down_is_not_waited_for(tmp_path, monkeypatch):
    from tune_tf.tracking import MLflowCallback
    from tune_tf.tracking.writing import writer

    def refuse(uri):
        raise ConnectionError("nobody listens")

    monkeypatch.setattr(run_writer, "connect", refuse)
    monkeypatch.setattr(writer, "_PATIENCE_WITHOUT_SPOOL_S", 0.1)
    monkeypatch.setattr(run_writer, "_RUN_TIMEOUT_S", 1e6)  # who waits hangs
    callback = MLflowCallback("http://nowhere.example", "digits", objective=LOSS)
    trials, named = sweep(tmp_path, callback)
    assert all(trial.is_finished() for trial in trials)
    assert set(named.values()) == {None}
