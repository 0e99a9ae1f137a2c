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


def test_trials_go_on_with_more_replicas_where_devices_are_free_and_keep_their_curves(
    ray_cluster, tmp_path
):
    results = defaultdict(list)

    class Recorded(tune.Callback):
        def on_trial_result(self, iteration, trials, trial, result, **info):
            results[trials.index(trial)].append(result)

    tune.run(
        trainable(DigitsMLP, seed=SEED, elastic=True),
        config={
            "width": tune.grid_search([8, 16]),
            "batch_size": 100,  # neither it nor the last batch divides by three
            "learning_rate": 3e-3,
        },
        stop={"training_iteration": LIMIT},
        scheduler=ResourceChangingScheduler(),
        reuse_actors=False,
        storage_path=str(tmp_path),
        callbacks=[Recorded()],
        verbose=0,
    )

    for grew in results.values():
        num_replicas = [len(result["devices"].split(", ")) for result in grew]
        assert [result["training_iteration"] for result in grew] == [1, 2, 3]
        assert num_replicas[0] == 1
        assert num_replicas == sorted(num_replicas)
        assert num_replicas[-1] >= 2
    alone = trainable(DigitsMLP, seed=SEED)(config=results[0][0]["config"])
    for grew in results[0]:
        undisturbed = alone.train()
        for name in METRICS:
            assert grew[name] == pytest.approx(undisturbed[name], rel=1e-5), name
    alone.stop()
