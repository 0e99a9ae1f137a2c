"""Attributes of a workload that its training step reads are part of a program's key."""

import numpy as np
import pytest
from structure_models import mlp
from trials import Given

from tune_tf.training.core.build import build_model
from tune_tf.training.core.program_cache import program_fingerprint


class ByAttributes(Given):
    """Trains by what it has: a rate that it names, and data that it does not."""

    def train_step(self, model, batch):
        return {"loss": self._scaled(1.0)}

    def _scaled(self, value):
        return value * self.rate


class HandsItselfOn(ByAttributes):
    def train_step(self, model, batch):
        return {"loss": vars(self)["rate"]}


@pytest.fixture
def step_key(replicas_of):
    def key(kind, **attributes):
        workload = kind(mlp(), None)
        vars(workload).update(attributes)
        model = built_plainly(workload, replicas_of(1))
        return program_fingerprint(workload, model, [], {}).key

    return key


def built_plainly(workload, replicas):
    return build_model(workload, {}, replicas, 1, np.zeros((2, 6), "float32"))


def test_attributes_that_a_train_step_names_are_in_the_key(step_key):
    assert step_key(ByAttributes, rate=1) != step_key(ByAttributes, rate=2)
    assert step_key(ByAttributes, rate=1, x=np.random.default_rng(1)) == step_key(
        ByAttributes, rate=1, x=2
    )


def test_all_of_a_workload_is_in_the_key_where_its_step_hands_it_on(step_key):
    assert step_key(HandsItselfOn, rate=1) != step_key(HandsItselfOn, rate=2)
    assert step_key(HandsItselfOn, rate=1, x=np.random.default_rng(1)) is None
