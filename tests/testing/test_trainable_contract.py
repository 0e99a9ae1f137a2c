"""Every kind of parallelism keeps the contract."""

from typing import ClassVar

import pytest

from tune_tf.parallelism import (
    Asynchronous,
    Ensemble,
    Folds,
    Hybrid,
    Mirrored,
    ModelParallel,
    MultiWorker,
    Parallelism,
)
from tune_tf.testing import TrainableContract
from tune_tf.trainables import trainable
from tune_tf.workloads.digits import DigitsMLP

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.usefixtures("ray_cluster")]


class OfOurs(TrainableContract):
    """Makes a Trainable of the digits by a parallelism."""

    parallelism: ClassVar[Parallelism] = Mirrored()
    config: ClassVar = {"width": 16, "optimizer": "adamw", "batch_size": 256}
    other_config: ClassVar = {"width": 16, "optimizer": "adamw", "learning_rate": 1e-4}

    @classmethod
    def make_trainable(cls):
        needed = cls.parallelism.resources(gpus_in_cluster=False)
        return trainable(DigitsMLP, cls.parallelism, resources=needed, seed=5)


class TestMirrored(OfOurs):
    parallelism = Mirrored(2)


class TestMultiWorker(OfOurs):
    parallelism = MultiWorker(2)
    tolerance = 1e-6


class TestAsynchronous(OfOurs):
    """With one worker no gradient is stale, so the numbers do not depend on chance."""

    parallelism = Asynchronous(1)


class TestModelParallel(OfOurs):
    parallelism = ModelParallel(2, micro_batches=2)


class TestHybrid(OfOurs):
    parallelism = Hybrid(2, 2)


class TestFolds(OfOurs):
    parallelism = Folds(2, num_devices=2)


class TestEnsemble(OfOurs):
    parallelism = Ensemble(2)
