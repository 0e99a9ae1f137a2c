import optuna
import pytest
from optuna.samplers import (
    BaseSampler,
    BruteForceSampler,
    CmaEsSampler,
    GPSampler,
    GridSampler,
    NSGAIIISampler,
    NSGAIISampler,
    QMCSampler,
    RandomSampler,
    TPESampler,
)
from optuna.storages import InMemoryStorage
from optuna.trial import TrialState, create_trial
from sampler_spaces import CONDITIONAL, FINITE, MIXED, NUMBERS

from tune_tf.errors import InvalidSettingsError
from tune_tf.searchers.samplers.catalogue import (
    SAMPLER_KINDS,
    make_sampler,
    needs_dense,
    optuna_samplers,
    uses_constraints,
)
from tune_tf.searchers.samplers.custom_samplers import (
    ExhaustiveSampler,
    NumberedRandomSampler,
    ProposalSampler,
)
from tune_tf.searchers.samplers.seen_trials import SeenTrials
from tune_tf.space import Float, SearchSpace
from tune_tf.space.optuna_form import OptunaSpace


class Own(BaseSampler):
    """A sampler that is not Optuna's."""

    infer_relative_search_space = sample_relative = sample_independent = None


KINDS = {
    "tpe": (TPESampler, MIXED, lambda seed: TPESampler(seed=seed, multivariate=False)),
    "random": (NumberedRandomSampler, MIXED, NumberedRandomSampler),
    "freeze_thaw": (ProposalSampler, MIXED, NumberedRandomSampler),
    "cmaes": (CmaEsSampler, NUMBERS, lambda seed: CmaEsSampler(seed=seed)),
    "gp": (GPSampler, MIXED, lambda seed: GPSampler(seed=seed)),
    "nsga2": (NSGAIISampler, MIXED, lambda seed: NSGAIISampler(seed=seed)),
    "nsga3": (NSGAIIISampler, MIXED, lambda seed: NSGAIIISampler(seed=seed)),
    "QMCSampler": (QMCSampler, MIXED, lambda seed: QMCSampler(seed=seed)),
    "grid": (ExhaustiveSampler, FINITE, lambda seed: BruteForceSampler(seed=seed)),
}
table = pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name == "gp" else []) for name in KINDS],
)


@pytest.fixture(autouse=True)
def _packages(request):
    """Skip what needs a package that is not there: the Gaussian process's are large."""
    given = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    if given.get("name") == "gp":
        for package in ("torch", "greenlet"):
            pytest.importorskip(package)


def seen_by(name, num_objectives=1):
    """Return a storage as a sampler sees it where a scheduler has no rungs."""
    storage = InMemoryStorage()
    return SeenTrials(storage, lambda: (), num_objectives) if name == "tpe" else storage


def loss(params):
    return abs(params["rate"] - 0.3) + params["units"] / 9


def proposals(sampler, storage, suggest, num_trials=30, num_objectives=1):
    """Return the configs of a study with one trial at a time, a third of them stopped."""
    directions = ["minimize"] * num_objectives
    study = optuna.create_study(storage=storage, sampler=sampler, directions=directions)
    return [told(study, study.ask(), suggest, storage, num_objectives) for _ in range(num_trials)]


def told(study, trial, suggest, storage, num_objectives=1):
    """Draw a trial's parameters, give it a curve and an end, and return its config."""
    config = suggest(trial)
    for step in (1, 2, 3):
        storage.set_trial_intermediate_value(trial._trial_id, step, loss(config) + 1 / step)
    if trial.number % 3 == 1:
        study.tell(trial, state=TrialState.PRUNED)
    else:
        study.tell(trial, [loss(config)] * num_objectives)
    return config


def test_every_sampler_is_in_these_tests():
    assert set(SAMPLER_KINDS) <= set(KINDS) <= {*SAMPLER_KINDS, *optuna_samplers()}


@table
@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_one_trial_at_a_time_without_rungs_gets_what_plain_optuna_proposes(name):
    kind, space, plain = KINDS[name]
    suggest = OptunaSpace(space, dense=needs_dense(name))
    ours = seen_by(name)
    sampler = make_sampler(name, 7, space=space)
    assert type(sampler) is kind
    num_trials = 18 if name == "gp" else 30  # the 10 ended ones that it waits for, and slow ones
    expected = proposals(plain(7), InMemoryStorage(), suggest, num_trials)
    assert proposals(sampler, ours, suggest, num_trials) == expected


DENSE = ["cmaes", "gp", "nsga2", "nsga3", "QMCSampler"]


@pytest.mark.parametrize("name", ["tpe", *DENSE, "random", "grid"])
def test_conditional_spaces_are_searched(name):
    space = SearchSpace({**CONDITIONAL.parameters, "rate": Float(0, 1, step=0.5)})
    assert needs_dense(name) is (name in DENSE)
    suggest = OptunaSpace(space, dense=needs_dense(name))
    storage = seen_by(name)
    study = optuna.create_study(storage=storage, sampler=make_sampler(name, 1, space=space))
    for _ in range(14):
        trial = study.ask()
        config = suggest(trial)
        assert space.validate(config) == []
        study.tell(trial, config["rate"] + config["depth"])


@pytest.mark.parametrize(
    ("sampler", "uses"),
    [
        ("tpe", True),
        ("gp", True),
        ("nsga2", True),
        ("nsga3", True),
        ("cmaes", False),
        ("random", False),
        ("grid", False),
        (TPESampler(), True),
        (RandomSampler(), False),
        (Own(), True),
    ],
    ids=str,
)
def test_uses_constraints_recognizes_samplers_that_learn_from_them(sampler, uses):
    assert uses_constraints(sampler) is uses


def test_any_other_sampler_of_optuna_is_made_by_its_class_with_its_arguments():
    made = make_sampler("QMCSampler", 3, space=MIXED, arguments={"qmc_type": "halton"})
    assert (type(made), made._qmc_type, made._seed) == (QMCSampler, "halton", 3)
    made = make_sampler("nsga2", 3, space=MIXED, arguments={"population_size": 7})
    assert (type(made), made.population_size) == (NSGAIISampler, 7)
    made = make_sampler("tpe", 3, space=MIXED, arguments={"n_startup_trials": 2})
    assert (made._n_startup_trials, made._multivariate) == (2, False)
    plain = make_sampler("TPESampler", 3, space=MIXED)
    assert (type(plain), plain._multivariate) == (TPESampler, TPESampler()._multivariate)


ARGUMENTS = {
    "unknown": (
        "nsga2",
        {"population": 7},
        "no argument 'population'; did you mean 'population_si",
    ),
    "of random": ("random", {"n": 7}, "'random' has no argument 'n'; it takes none"),
    "given": ("QMCSampler", {"seed": 7}, "no argument 'seed'; it takes qmc_type, scramble"),
    "value": ("nsga2", {"population_size": 1}, "'nsga2' refuses its arguments: `population_size`"),
    "loop": (
        GridSampler({}),
        None,
        "GridSampler needs the loop of study.optimize: use sampler='gr",
    ),
    "made": (TPESampler(), {"n": 7}, r"sampler_arguments=\{'n': 7\} has no effect on a sampler"),
}


@pytest.mark.parametrize(("sampler", "arguments", "text"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_wrong_arguments_are_refused_with_the_right_ones(sampler, arguments, text):
    seed = None if isinstance(sampler, BaseSampler) else 1
    with pytest.raises(InvalidSettingsError, match=text):
        make_sampler(sampler, seed, space=MIXED, arguments=arguments)


def drawn(sampler, number, *, paths=("rate", "units")):
    trial = create_trial(state=TrialState.RUNNING)
    trial.number = number
    distributions = NUMBERS.distributions()
    return [sampler.sample_independent(None, trial, path, distributions[path]) for path in paths]


def test_random_configs_follow_from_seed_number_and_name_alone():
    sampler = make_sampler("random", 7, space=NUMBERS)
    first = [drawn(sampler, number) for number in range(50)]

    assert drawn(sampler, 3) == first[3]
    assert drawn(sampler, 3, paths=("units", "rate")) == first[3][::-1]
    assert drawn(make_sampler("random", 7, space=NUMBERS), 49) == first[49]
    assert drawn(make_sampler("random", 7, space=NUMBERS, num_trials=12), 49) == first[49]
    assert drawn(make_sampler("random", 8, space=NUMBERS), 3) != first[3]
    assert len({rate for rate, _ in first}) == 50
