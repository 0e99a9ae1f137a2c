"""Promotion under Ray Tune: paused and resumed trials."""

import json
from collections import Counter
from pathlib import Path

import pytest

from tune_tf.outcome import STOP_REASON
from tune_tf.space import Float, SearchSpace

on_a_cluster = [pytest.mark.slow, pytest.mark.cluster]

NUM_SAMPLES, NUM_CONCURRENT, MAX_T = 12, 2, 9
SPACE = SearchSpace({"x": Float(0.0, 1.0)})


def counting(folder):
    """Return a trainable that writes down each iteration, and goes on from its checkpoint only."""
    from ray import tune

    class Counting(tune.Trainable):
        def setup(self, config):
            self.count, self.x = 0, config["x"]

        def step(self):
            self.count += 1
            with Path(folder, "iterations.jsonl").open("a") as file:
                file.write(json.dumps([self.trial_id, self.count]) + "\n")
            return {"loss": self.x + 1 / self.count}

        def save_checkpoint(self, checkpoint_dir):
            return {"count": self.count, "x": self.x}

        def load_checkpoint(self, checkpoint):
            if checkpoint["x"] != self.x or checkpoint["count"] != self.iteration:
                raise ValueError(f"{checkpoint} is not of iteration {self.iteration}, x {self.x}")
            self.count = checkpoint["count"]
            with Path(folder, "taken_up.txt").open("a") as file:
                file.write(f"{self.trial_id} at {self.count}\n")

        def reset_config(self, new_config):
            self.setup(new_config)
            return True

    return Counting


def sweep(folder, scheduler, **options):
    """Run a sweep; return Tune's trials, Optuna's trials by Tune's id and the iterations done."""
    from optuna.samplers import RandomSampler
    from ray import tune
    from slots import LOSS

    from tune_tf.searchers import OptunaSearcher

    class Watch(tune.Callback):
        most_at_a_time = 0

        def on_step_end(self, iteration, trials, **info):
            active = sum(trial.status == "RUNNING" and not trial.is_saving for trial in trials)
            self.most_at_a_time = max(self.most_at_a_time, active)

    watch = Watch()
    searcher = OptunaSearcher(SPACE, LOSS, RandomSampler(9))  # the best trial is the first
    given = {
        "reuse_actors": True,
        "max_concurrent_trials": NUM_CONCURRENT,
        "num_samples": NUM_SAMPLES,
    }
    analysis = tune.run(
        counting(folder),
        search_alg=searcher,
        scheduler=scheduler,
        storage_path=str(folder),
        checkpoint_config=tune.CheckpointConfig(num_to_keep=2),
        callbacks=[watch],
        raise_on_failed_trial=False,
        verbose=0,
        **(given | options),
    )
    told = {trial.user_attrs["tune_trial_id"]: trial for trial in searcher.study.trials}
    lines = Path(folder, "iterations.jsonl").read_text().splitlines()
    return analysis.trials, told, [tuple(json.loads(line)) for line in lines], watch


def asha():
    from test_promotion import make

    return make(max_t=MAX_T)


def pasha():
    from slots import LOSS

    from tune_tf.config.scheduler_settings import PashaSettings
    from tune_tf.schedulers.promotion import PashaScheduler

    return PashaScheduler(LOSS, PashaSettings(max_t=MAX_T))


STATES = {"completed": "COMPLETE", "pruned": "PRUNED"}


@pytest.mark.parametrize(
    ("under", "make_scheduler", "options", "completed_at", "pruned_at"),
    [
        ("inline", asha, {}, {9}, {1, 3}),
        ("inline", asha, {"reuse_actors": False, "num_samples": 9}, {9}, {1, 3}),
        ("inline", pasha, {}, {3}, {1}),
        pytest.param("ray_cluster", asha, {}, {9}, {1, 3}, marks=on_a_cluster),
    ],
    ids=["asha", "asha with fresh actors", "pasha", "asha on a cluster"],
)
def test_every_iteration_is_done_once_and_every_trial_ends_alike(
    tmp_path, request, under, make_scheduler, options, completed_at, pruned_at
):
    request.getfixturevalue(under)
    trials, told, iterations, watch = sweep(tmp_path, make_scheduler(), **options)
    assert len(trials) == options.get("num_samples", NUM_SAMPLES) == len(told)
    assert {trial.status for trial in trials} == {"TERMINATED"}
    assert max(Counter(iterations).values()) == 1
    assert watch.most_at_a_time <= NUM_CONCURRENT
    ends = set()
    for trial in trials:
        last = trial.last_result["training_iteration"]
        done = [step for name, step in iterations if name == trial.trial_id]
        assert done == list(range(1, last + 1))
        reason = trial.last_result[STOP_REASON]
        optuna = told[trial.trial_id]
        assert optuna.state.name == STATES[reason]
        assert optuna.value == pytest.approx(trial.config["x"] + 1 / last)
        ends.add((reason, last))
    assert {last for reason, last in ends if reason == "completed"} == completed_at
    assert {last for reason, last in ends if reason == "pruned"} == pruned_at
    best = min(trials, key=lambda trial: trial.config["x"])
    assert best.last_result[STOP_REASON] == "completed"
    assert (tmp_path / "taken_up.txt").exists(), "no trial was taken up again"


@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize("limiter", ["ConcurrencyLimiter", "BasicVariantGenerator"])
def test_a_sweep_ends_where_rays_limit_of_one_counts_waiting_trials(tmp_path, limiter):
    from ray import tune
    from ray.tune.search import ConcurrencyLimiter
    from ray.tune.search.optuna import OptunaSearch

    space, search_alg = {"x": tune.uniform(0, 1)}, None
    if limiter == "ConcurrencyLimiter":
        search_alg = ConcurrencyLimiter(
            OptunaSearch(metric="loss", mode="min", seed=0), max_concurrent=1
        )
    analysis = tune.run(
        counting(tmp_path),
        config=space,
        search_alg=search_alg,
        scheduler=asha(),
        num_samples=5,
        max_concurrent_trials=None if search_alg else 1,
        storage_path=str(tmp_path),
        reuse_actors=True,
        verbose=0,
    )
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"] * 5
    reasons = {trial.last_result[STOP_REASON] for trial in analysis.trials}
    assert reasons <= {"completed", "pruned"}


@pytest.mark.usefixtures("inline")
def test_the_end_of_a_trial_that_waited_stands_in_tunes_snapshot(tmp_path):
    sweep(tmp_path, asha(), num_samples=4, name="sweep")
    [snapshot] = Path(tmp_path, "sweep").glob("experiment_state-*.json")
    kept = json.loads(snapshot.read_text())["trial_data"]
    states = [json.loads(trial)["status"] for trial, _ in kept]
    assert states == ["TERMINATED"] * 4
