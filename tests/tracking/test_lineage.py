"""Clones as they show on Tune's own trials; how Tune makes them is tested under Tune."""

import json
import pickle
from types import SimpleNamespace

import pytest

from tune_tf.tracking.names import EXPLOITS
from tune_tf.tracking.writing.run_update import Report


@pytest.fixture
def lineage():
    from tune_tf.tracking.lineage import Lineage

    return Lineage({})


class Population:
    """Two trials as a callback sees them; ``a`` may go on from a checkpoint of ``b``."""

    def __init__(self):
        self.a, self.b = self._trial("a"), self._trial("b")
        self.trials = [self.a, self.b]

    def _trial(self, name):
        return SimpleNamespace(
            trial_id=name,
            path=f"/sweep/{name}",
            config={"rate": 1.0, "net": {"kind": "plain"}},
            checkpoint=None,
            latest_checkpoint_result=None,
        )

    def clone(self, number=0, iteration=4, **config):
        self.a.checkpoint = SimpleNamespace(path=f"/sweep/b/checkpoint_{number}")
        self.a.latest_checkpoint_result = SimpleNamespace(metrics={"training_iteration": iteration})
        self.a.config = {**self.a.config, **config}


@pytest.fixture
def population(lineage):
    population = Population()
    for trial in population.trials:
        assert lineage.record_start(trial, population.trials, 0) is None
    return population


def test_a_trial_that_starts_from_its_own_checkpoint_is_no_clone(lineage, population):
    population.a.checkpoint = SimpleNamespace(path="/sweep/a/checkpoint_0")
    assert lineage.record_start(population.a, population.trials, 1) is None


def test_a_trial_that_starts_from_anothers_checkpoint_is_its_clone(lineage, population):
    lineage.add_to_report("a", 3, 50, {})
    population.clone(rate=2.0, net={"kind": "wide"})
    clone = lineage.record_start(population.a, population.trials, 100)
    assert clone.tags == {"tune_tf.cloned_from": "b", "tune_tf.cloned_at": "3"}
    (record,) = json.loads(lineage.to_json())
    assert record == {
        "trial": "a",
        "source": "b",
        "iteration": 3,
        "source_iteration": 4,
        "time_ms": 100,
        "before": {"rate": 1.0, "net/kind": "plain"},
        "after": {"rate": 2.0, "net/kind": "wide"},
        "time": "1970-01-01T00:00:00.100000+00:00",
    }


def test_a_clone_that_starts_again_without_a_checkpoint_of_its_own_is_not_cloned_again(
    lineage, population
):
    population.clone(rate=2.0)
    lineage.record_start(population.a, population.trials, 1)
    assert lineage.record_start(population.a, population.trials, 2) is None
    population.clone(number=1)
    assert lineage.record_start(population.a, population.trials, 3) is not None


def test_a_changed_number_begins_a_curve_at_the_first_report(lineage, population):
    lineage.add_to_report("a", 1, 10, {})
    lineage.add_to_report("a", 2, 20, {})
    population.clone(rate=2.0, net={"kind": "wide"})
    lineage.record_start(population.a, population.trials, 30)
    metrics = {"loss": 0.5}
    before, tags = lineage.add_to_report("a", 5, 40, metrics)
    assert before == [Report(1, 10, {"hp/rate": 1.0}, once=False)]
    assert metrics == {EXPLOITS: 1.0, "hp/rate": 2.0, "loss": 0.5}
    assert list(metrics)[-1] == "loss"
    assert tags == {"hp/net/kind": "wide"}


def test_a_second_change_goes_on_in_the_curve_and_the_count(lineage, population):
    lineage.add_to_report("a", 1, 10, {})
    for number in (1, 2):
        population.clone(number, rate=float(number + 1))
        lineage.record_start(population.a, population.trials, number)
        metrics = {}
        before, _ = lineage.add_to_report("a", number + 1, 20 + number, metrics)
    assert before == []
    assert metrics == {EXPLOITS: 2.0, "hp/rate": 3.0}
    later = {}
    lineage.add_to_report("a", 9, 99, later)
    assert later == {EXPLOITS: 2.0}


def test_a_trial_that_was_never_cloned_gets_no_more_metrics(lineage, population):
    metrics = {"loss": 1.0}
    assert lineage.add_to_report("b", 1, 10, metrics) == ([], {})
    assert metrics == {"loss": 1.0}


def test_a_resume_knows_the_clones_and_what_is_still_to_be_told(lineage, population):
    from tune_tf.tracking.lineage import Lineage

    lineage.add_to_report("a", 1, 10, {})
    population.clone(rate=2.0)
    lineage.record_start(population.a, population.trials, 20)
    resumed = Lineage(pickle.loads(pickle.dumps(lineage.state())))
    assert resumed.clones == lineage.clones
    assert resumed.record_start(population.a, population.trials, 30) is None
    metrics = {}
    before, _ = resumed.add_to_report("a", 5, 40, metrics)
    assert before == [Report(1, 10, {"hp/rate": 1.0}, once=False)]
    assert metrics == {EXPLOITS: 1.0, "hp/rate": 2.0}


def test_a_clone_that_was_made_after_the_last_snapshot_but_before_its_start_is_found(
    lineage, population
):
    from tune_tf.tracking.lineage import Lineage

    state = pickle.loads(pickle.dumps(lineage.state()))
    population.clone(rate=2.0)
    resumed = Lineage(state)
    assert resumed.record_start(population.a, population.trials, 30) is not None
