"""Trials of each parallelism with frozen layers that are computed once."""

import functools
import sys

import keras
import numpy as np
import pytest
import ray

from tune_tf.parallelism import Folds, Mirrored, MultiWorker
from tune_tf.resources import TrialResources
from tune_tf.result_keys import FROZEN_LAYERS
from tune_tf.trainables import trainable
from tune_tf.workload import Data, Workload

ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Ray's workers cannot import it

pytestmark = pytest.mark.tf
of_workers = functools.partial(pytest.param, marks=[pytest.mark.slow, pytest.mark.cluster])


class Frozen(Workload):
    """A trained head over frozen layers."""

    def load_data(self, config):
        rng = np.random.default_rng(0)
        x = rng.normal(size=(81, 8)).astype("float32")
        y = (x @ rng.normal(size=(8, 3))).argmax(-1).astype("int32")
        return Data(train=(x[:65], y[:65]), validation=(x[65:], y[65:]))

    def build_model(self, config):
        seeds = [keras.initializers.GlorotUniform(seed) for seed in (1, 2)]
        base = keras.Sequential(
            [keras.layers.Dense(64, "relu", kernel_initializer=seed) for seed in seeds]
        )
        base.trainable = False
        x = keras.Input((8,))
        features = keras.layers.Dropout(0.2)(base(x))
        model = keras.Model(x, keras.layers.Dense(3)(features))
        model.compile(
            keras.optimizers.SGD(config["learning_rate"], momentum=0.9),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
        return model

    def global_batch_size(self, config):
        return 16


def results(parallelism, share):
    """Return the numbers of two epochs of two trials in one process."""
    kind = trainable(
        Frozen,
        parallelism,
        seed=4,
        share_frozen=share,
        resources=TrialResources(cpus=parallelism.num_devices),
    )
    found, trial = [], None
    try:
        for rate in (0.1, 0.01):
            if trial is None:
                trial = kind(config={"learning_rate": rate})
            else:
                assert trial.reset({"learning_rate": rate})
            found += [trial.train() for _ in range(2)]
    finally:
        if trial is not None:
            trial.stop()
    return found


@pytest.mark.parametrize(
    "parallelism",
    [
        pytest.param(Mirrored(), id="mirrored"),
        pytest.param(Mirrored(micro_batches=2), id="micro-batches", marks=pytest.mark.slow),
        of_workers(MultiWorker(2), id="workers"),
        pytest.param(Folds(3, num_devices=1), id="folds", marks=pytest.mark.slow),
    ],
)
def test_numbers_are_those_of_trials_that_share_nothing(parallelism, request):
    if parallelism.num_workers > 1:
        request.getfixturevalue("ray_cluster")
    shared, alone = (results(parallelism, share) for share in (True, False))
    assert all(each[FROZEN_LAYERS].startswith("shared") for each in shared)
    assert not any(FROZEN_LAYERS in each for each in alone)
    for one, other in zip(shared, alone, strict=True):
        for metric in ("loss", "accuracy", "val_loss", "val_accuracy"):
            assert one[metric] == pytest.approx(other[metric], abs=1e-6)
