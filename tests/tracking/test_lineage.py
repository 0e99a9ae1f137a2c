"""Clones as they show on Tune's own trials; how Tune makes them is tested under Tune."""

import pickle
from types import SimpleNamespace

import pytest

from tune_tf.tracking.lineage import Lineage
from tune_tf.tracking.names import EXPLOITS


class Population:
    """Two trials as a callback sees them; ``a`` may go on from a checkpoint of ``b``."""

    def __init__(self):
        self.a, self.b = self._trial("a"), self._trial("b")
        self.trials = [self.a, self.b]

    def _trial(self, name):
        config = {"rate": 1.0, "net": {"kind": "plain"}}
        return SimpleNamespace(trial_id=name, path=f"/s/{name}", config=config, checkpoint=None)

    def clone(self, number=0, **config):
        self.a.checkpoint = SimpleNamespace(path=f"/s/b/checkpoint_{number}")
        self.a.config = {**self.a.config, **config}


@pytest.fixture
def lineage():
    return Lineage({})


@pytest.fixture
def population(lineage):
    population = Population()
    for trial in population.trials:
        assert lineage.record_start(trial, population.trials) == {}
    return population


def test_a_trial_that_starts_from_its_own_checkpoint_is_no_clone(lineage, population):
    population.a.checkpoint = SimpleNamespace(path="/s/a/checkpoint_0")
    assert lineage.record_start(population.a, population.trials) == {}


def test_a_clone_is_tagged_once_and_its_new_values_begin_curves(lineage, population):
    population.clone(rate=2.0, net={"kind": "wide"})
    assert lineage.record_start(population.a, population.trials) == {"tune_tf.cloned_from": "b"}
    assert lineage.record_start(population.a, population.trials) == {}  # no checkpoint of its own
    metrics = {"loss": 0.5}
    assert lineage.add_to_report("a", metrics) == {"hp/net/kind": "wide"}
    assert metrics == {EXPLOITS: 1.0, "hp/rate": 2.0, "loss": 0.5}
    assert list(metrics)[-1] == "loss"
    metrics = {"loss": 0.5}
    assert lineage.add_to_report("b", metrics) == {}
    assert metrics == {"loss": 0.5}


def test_a_resume_knows_the_clones_and_what_is_still_to_be_told(lineage, population):
    population.clone(rate=2.0)
    state = pickle.loads(pickle.dumps(lineage.state()))
    assert Lineage(state).record_start(population.a, population.trials)  # saved before the start
    lineage.record_start(population.a, population.trials)
    resumed = Lineage(pickle.loads(pickle.dumps(lineage.state())))
    assert resumed.record_start(population.a, population.trials) == {}
    metrics = {}
    resumed.add_to_report("a", metrics)
    assert metrics == {EXPLOITS: 1.0, "hp/rate": 2.0}
    population.clone(number=1, rate=3.0)
    resumed.record_start(population.a, population.trials)
    metrics = {}
    resumed.add_to_report("a", metrics)
    assert metrics == {EXPLOITS: 2.0, "hp/rate": 3.0}
