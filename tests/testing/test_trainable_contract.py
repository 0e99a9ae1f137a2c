"""Trials of replicas, of stages and of several models keep the contract."""

from typing import ClassVar

import pytest

from tune_tf.parallelism import Folds, Mirrored, ModelParallel, Parallelism
from tune_tf.testing import TrainableContract
from tune_tf.trainables import trainable
from tune_tf.workloads.digits import DigitsMLP

pytestmark = pytest.mark.usefixtures("ray_cluster")


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


@pytest.mark.slow
class TestModelParallel(OfOurs):
    parallelism = ModelParallel(2, micro_batches=2)


@pytest.mark.slow
class TestFolds(OfOurs):
    parallelism = Folds(2)
