"""Fewer trials than the cluster has room for, under Ray's scheduler: they get more replicas."""

from collections import defaultdict

import pytest
from ray import tune
from ray.tune.schedulers import ResourceChangingScheduler

from tune_tf import trainable
from tune_tf.workloads.digits import DigitsMLP

pytestmark = [pytest.mark.tf, pytest.mark.cluster, pytest.mark.slow]

METRICS = ("loss", "accuracy", "val_loss", "val_accuracy")
LIMIT = 3
SEED = 4


class Recorded(tune.Callback):
    """Keeps the results of each trial in their order, by the trial's number."""

    def __init__(self):
        self.results = defaultdict(list)

    def on_trial_result(self, iteration, trials, trial, result, **info):
        self.results[trials.index(trial)].append(result)


@pytest.fixture(scope="module")
def grown(ray_cluster, tmp_path_factory):
    """The results of two trials on four CPUs, which are given what is free."""
    recorded = Recorded()
    analysis = tune.run(
        trainable(DigitsMLP, seed=SEED, elastic=True),
        config={
            "width": tune.grid_search([8, 16]),
            "batch_size": 100,  # neither it nor the last batch divides by three
            "learning_rate": 3e-3,
        },
        stop={"training_iteration": LIMIT},
        scheduler=ResourceChangingScheduler(),
        reuse_actors=False,
        storage_path=str(tmp_path_factory.mktemp("sweeps")),
        callbacks=[recorded],
        verbose=0,
    )
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"] * 2
    return recorded.results


def test_trials_go_on_with_more_replicas_where_devices_are_free(grown):
    for results in grown.values():
        num_replicas = [len(result["devices"].split(", ")) for result in results]

        assert [result["training_iteration"] for result in results] == [1, 2, 3]
        assert num_replicas[0] == 1
        assert num_replicas == sorted(num_replicas)
        assert num_replicas[-1] >= 2


def test_a_trial_that_grows_keeps_the_curve_of_an_undisturbed_one(grown):
    first = grown[0]  # a trial outside of a sweep has the seed of the first
    alone = trainable(DigitsMLP, seed=SEED)(config=first[0]["config"])
    for grew in first:
        undisturbed = alone.train()
        assert undisturbed["devices"] == "CPU:0"
        for name in METRICS:
            assert grew[name] == pytest.approx(undisturbed[name], rel=1e-5), name
    alone.stop()
    assert first[-1]["devices"] != "CPU:0"
