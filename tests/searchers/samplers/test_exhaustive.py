import optuna
import pytest

from tune_tf.searchers.samplers.catalogue import make_sampler
from tune_tf.space import Choice, Float, Int, SearchSpace
from tune_tf.space.optuna_form import OptunaSpace

SMALL = SearchSpace({"a": Choice(["x", "y"]), "b": Float(0.1, 0.3, step=0.1), "c": Int(1, 1)})
TREE = SearchSpace({"a": Choice(["x", "y"]), "b": Int(1, 2, when={"a": "y"})})


LOGARITHMIC = SearchSpace({"a": Int(1, 4, log=True), "b": Choice([1, 2])})


@pytest.mark.parametrize("num_running", [1, 3], ids=["one at a time", "three at a time"])
@pytest.mark.parametrize(
    ("space", "num_configs"),
    [(SMALL, 6), (TREE, 3), (LOGARITHMIC, 8)],
    ids=["steps", "conditional", "logarithmic"],
)
def test_a_grid_hands_out_each_config_once_and_is_exhausted(space, num_configs, num_running):
    sampler = make_sampler("grid", 3, space=space)
    study = optuna.create_study(sampler=sampler)
    running, configs = [], []
    while not sampler.exhausted(study):
        running.append(study.ask())
        configs.append(OptunaSpace(space)(running[-1]))
        if len(running) == num_running:
            study.tell(running.pop(0), 1.0)
    for trial in running:
        study.tell(trial, 1.0)
    assert len(configs) == len({str(config) for config in configs}) == num_configs
    assert all(space.validate(config) == [] for config in configs)
    assert sampler.exhausted(study)
