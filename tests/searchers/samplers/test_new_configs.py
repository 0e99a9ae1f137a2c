import optuna
import pytest
from optuna.trial import TrialState

from tune_tf.objective import Objective
from tune_tf.searchers import OptunaSearcher
from tune_tf.searchers.samplers.new_configs import NewConfigSampler
from tune_tf.space import Choice, Float, Int, SearchSpace
from tune_tf.space.optuna_form import OptunaSpace

FAIL = TrialState.FAIL

OPTIONS = SearchSpace({"a": Choice([1, 2]), "b": Int(1, 2)})
GRID = SearchSpace({"a": Choice(["x", None, 1]), "b": Int(1, 4), "c": Float(0, 1, step=0.5)})
CONDITIONAL = SearchSpace(
    {"a": Choice(["x", "y"]), "b": Int(1, 3, when={"a": "y"}), "one": Int(3, 3), "fixed": 1}
)
SAMPLERS = {
    "random": lambda: optuna.samplers.RandomSampler(seed=1),
    "tpe": lambda: optuna.samplers.TPESampler(seed=1, multivariate=False),
    "nsgaii": lambda: optuna.samplers.NSGAIISampler(seed=1, population_size=4),
    "qmc": lambda: optuna.samplers.QMCSampler(seed=1, warn_independent_sampling=False),
}


def make(space=OPTIONS, sampler="random", *, dense=False):
    """Return a study whose sampler replaces what was tried, and a function that asks it."""
    suggest = OptunaSpace(space, dense=dense)
    made = sampler if not isinstance(sampler, str) else SAMPLERS[sampler]()
    study = optuna.create_study(sampler=NewConfigSampler(made, suggest))

    def ask():
        trial = study.ask()
        return trial, repr(suggest(trial))

    return study, ask


def fail(study, trial, **attributes):
    for key, value in {"stop_reason": "diverged", **attributes}.items():
        trial.set_user_attr(key, value)
    study.tell(trial, state=FAIL)


def proposed(study, ask, num_trials):
    """Return configs, as texts, of trials that all end well."""
    configs = []
    for _ in range(num_trials):
        trial, config = ask()
        configs.append(config)
        study.tell(trial, float(len(configs)))
    return configs


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_a_config_that_gave_nan_is_not_proposed_again(sampler):
    study, ask = make(OPTIONS, sampler)
    trial, failed = ask()
    fail(study, trial)
    assert failed not in proposed(study, ask, 12)
    assert len(study.trials) == 13


class Stuck(optuna.samplers.RandomSampler):
    """Proposes one config only."""

    def sample_independent(self, study, trial, param_name, param_distribution):
        return 2


@pytest.mark.parametrize(
    ("attributes", "is_repeated"),
    [({}, False), ({"config_changed_at": 1}, True), ({"stop_reason": "error"}, True)],
    ids=["diverged", "after another config", "for another reason"],
)
def test_where_all_was_tried_only_what_would_diverge_again_is_left_out(attributes, is_repeated):
    study, ask = make(sampler=Stuck())
    trial, failed = ask()
    fail(study, trial, **attributes)
    configs = proposed(study, ask, 15)
    assert len(set(configs)) >= 3
    assert (failed in configs) is is_repeated


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize(("space", "size"), [(GRID, 36), (CONDITIONAL, 4)])
@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_a_finite_space_is_searched_without_repeats(space, size, sampler, dense):
    configs = proposed(*make(space, sampler, dense=dense), size)
    assert len(set(configs)) == size or (dense and space.conditional)


@pytest.mark.parametrize(
    ("sampler", "space", "is_replaced"),
    [
        ("tpe", {"a": Int(1, 9)}, True),
        ("tpe", {"a": Int(1, 9), "x": Float(0, 1)}, False),
        ("grid", {"a": Int(1, 9)}, False),
        (optuna.samplers.TPESampler(), {"a": Int(1, 9)}, False),
    ],
    ids=["finite", "a range", "exhaustive", "the user's own"],
)
def test_configs_are_replaced_in_finite_spaces_under_our_samplers(sampler, space, is_replaced):
    searcher = OptunaSearcher(SearchSpace(space), Objective("loss", "min"), sampler)
    searcher.suggest("a")
    assert isinstance(searcher._trials.sampled.sampler, NewConfigSampler) is is_replaced
