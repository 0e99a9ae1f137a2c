import optuna
import pytest
from optuna.distributions import FloatDistribution, IntDistribution
from optuna.trial import create_trial
from sampler_spaces import define

from tune_tf.searchers.samplers.catalogue import (
    make_sampler,
)
from tune_tf.searchers.samplers.custom_samplers import grid_points
from tune_tf.searchers.space_adapter import suggest_of
from tune_tf.space import Choice, Float, Int, SearchSpace


def test_what_an_earlier_sweep_tried_beside_the_grid_is_not_counted():
    sampler = make_sampler("grid", 1, space={"b": IntDistribution(1, 2)})
    study = optuna.create_study(sampler=sampler)
    wider = {"b": IntDistribution(1, 9)}
    for value in (1, 8, 9):
        study.add_trial(create_trial(value=1.0, params={"b": value}, distributions=wider))
    assert not sampler.exhausted(study)
    study.add_trial(create_trial(value=1.0, params={"b": 2}, distributions=wider))
    assert sampler.exhausted(study)


SMALL = SearchSpace({"a": Choice(["x", "y"]), "b": Float(0.1, 0.3, step=0.1), "c": Int(1, 1)})
TREE = SearchSpace({"a": Choice(["x", "y"]), "b": Int(1, 2, when={"a": "y"})})


@pytest.mark.parametrize("num_running", [1, 3], ids=["one at a time", "three at a time"])
@pytest.mark.parametrize(
    ("name", "space", "num_configs"),
    [("grid", SMALL, 6), ("BruteForceSampler", SMALL, 6), ("BruteForceSampler", TREE, 3)],
    ids=["grid", "bruteforce", "conditional"],
)
def test_finite_samplers_hand_out_each_config_once_and_are_exhausted(
    name, space, num_configs, num_running
):
    sampler = make_sampler(name, 3, space=space)
    study = optuna.create_study(sampler=sampler)
    running, configs = [], []
    while not sampler.exhausted(study):
        running.append(study.ask())
        configs.append(suggest_of(space)(running[-1]))
        if len(running) == num_running:
            study.tell(running.pop(0), 1.0)
    for trial in running:
        study.tell(trial, 1.0)
    assert len(configs) == len({str(config) for config in configs}) == num_configs
    assert all(space.validate(config) == [] for config in configs)
    assert sampler.exhausted(study)


def test_an_exhaustive_search_of_a_callable_knows_its_end():
    sampler = make_sampler("BruteForceSampler", 1, space=define)
    study = optuna.create_study(sampler=sampler)
    num_asked = 0
    while not sampler.exhausted(study):
        trial = study.ask()
        if trial.suggest_categorical("a", ["x", "y"]) == "y":
            trial.suggest_int("b", 1, 3)
        num_asked += 1
    assert num_asked == 4


def test_the_points_of_a_grid_are_exact():
    assert grid_points({"a": FloatDistribution(0.1, 0.7, step=0.2)}) == {"a": [0.1, 0.3, 0.5, 0.7]}
