import optuna
import pytest
from optuna.storages import InMemoryStorage

from tune_tf.objective import Objective
from tune_tf.outcome import Outcome
from tune_tf.searchers.criteria import SearchCriteria
from tune_tf.searchers.sampler_view import (
    NO_POINTS,
    PointIndex,
    SamplerView,
    draw_new_config,
    is_asked,
)
from tune_tf.searchers.samplers.custom_samplers import ExhaustiveSampler
from tune_tf.searchers.storage.study_storage import open_study
from tune_tf.searchers.trial_attrs import WARM_START
from tune_tf.searchers.trial_outcome import TrialOutcome
from tune_tf.searchers.trial_registry import TrialRegistry

DIVERGED = TrialOutcome(Outcome.DIVERGED, cause="loss is nan")


def options(trial):
    return {"a": trial.suggest_categorical("a", [1, 2]), "b": trial.suggest_int("b", 1, 2)}


def numbers(trial):
    return {"x": trial.suggest_float("x", 0, 1)}


SAMPLERS = {
    "random": lambda: optuna.samplers.RandomSampler(seed=1),
    "tpe": lambda: optuna.samplers.TPESampler(seed=1, multivariate=False),
    "nsgaii": lambda: optuna.samplers.NSGAIISampler(seed=1, population_size=4),
    "qmc": lambda: optuna.samplers.QMCSampler(seed=1, warn_independent_sampling=False),
}


def make_registry(suggest, sampler="random", rungs=()):
    storage = InMemoryStorage()
    study = open_study(storage, "s", SearchCriteria((Objective("loss", "min"),)))
    study.sampler = SAMPLERS[sampler]()
    registry = TrialRegistry(
        study, storage, suggest, sampler_view=SamplerView(study, storage, lambda: rungs)
    )
    registry.reconcile()
    return registry


def proposed(registry, num_trials):
    """Return configs, as texts, of trials that all end well."""
    configs = []
    for number in range(num_trials):
        configs.append(repr(registry.ask(str(number))))
        registry.tell(str(number), TrialOutcome(Outcome.COMPLETED, float(len(configs)), 1))
    return configs


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_a_config_that_gave_nan_is_not_proposed_again(sampler):
    registry = make_registry(options, sampler)
    failed = registry.ask("first")
    registry.tell("first", DIVERGED)
    for number in range(12):
        assert registry.ask(str(number)) != failed
        registry.tell(str(number), TrialOutcome(Outcome.COMPLETED, 1.0, 1))
    assert len(registry.study.trials) == 13


def test_a_config_that_gave_nan_before_a_resume_is_not_proposed_again():
    registry = make_registry(options)
    failed = registry.ask("first")
    registry.tell("first", DIVERGED)
    again = TrialRegistry(registry.study, registry._storage, options, registry.state.copy())
    again.reconcile()
    assert all(again.ask(str(number)) != failed for number in range(12))


def test_where_everything_gave_nan_a_sweep_goes_on():
    registry = make_registry(lambda trial: {"a": trial.suggest_categorical("a", [1])})
    for number in range(3):
        assert registry.ask(str(number)) == {"a": 1}
        registry.tell(str(number), DIVERGED)


def test_what_is_drawn_from_a_range_costs_no_rehearsal(monkeypatch):
    monkeypatch.setattr("tune_tf.searchers.sampler_view.draw_new_config", None)
    registry = make_registry(numbers)
    first = registry.ask("first")
    registry.tell("first", DIVERGED)
    assert registry.ask("second") != first


def test_what_failed_for_another_reason_may_be_proposed_again(monkeypatch):
    monkeypatch.setattr("tune_tf.searchers.sampler_view.draw_new_config", None)
    registry = make_registry(options)
    registry.ask("first")
    registry.tell("first", TrialOutcome(Outcome.ERROR, cause="node died"))
    assert registry.ask("second")


def test_a_nan_after_a_config_change_does_not_exclude_the_first_config(monkeypatch):
    registry = make_registry(options)
    registry.ask("first")
    registry.report("first", 1, 0.5)
    registry.note_change("first", 1)
    registry.tell("first", DIVERGED, {"config_changed_at": 1})
    monkeypatch.setattr("tune_tf.searchers.sampler_view.draw_new_config", None)
    assert registry.ask("second")


def grid(trial):
    return {
        "a": trial.suggest_categorical("a", ["x", None, 1]),
        "b": trial.suggest_int("b", 1, 4),
        "c": trial.suggest_float("c", 0, 1, step=0.5),
    }


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_a_finite_space_is_searched_without_repeats_if_there_are_rungs(sampler):
    configs = proposed(make_registry(grid, sampler, rungs=(1, 3)), 36)
    assert len(set(configs)) == 36


def test_without_rungs_configs_repeat_as_optuna_has_it():
    plain = optuna.create_study(sampler=SAMPLERS["tpe"]())
    expected = []
    for number in range(36):
        trial = plain.ask()
        expected.append(repr(grid(trial)))
        plain.tell(trial, float(number + 1))
    assert proposed(make_registry(grid, "tpe"), 36) == expected
    assert len(set(expected)) < 36


def test_with_rungs_the_first_proposals_are_optunas_own():
    plain = optuna.create_study(sampler=SAMPLERS["random"]())
    expected = [repr(grid(plain.ask())) for _ in range(4)]
    assert proposed(make_registry(grid, rungs=(1,)), 4) == expected


def test_once_every_config_was_tried_a_sweep_goes_on():
    registry = make_registry(options, rungs=(1,))
    assert len(set(proposed(registry, 6))) == 4


def test_an_exhausted_space_repeats_all_configs_but_diverged_ones():
    registry = make_registry(options, rungs=(1,))
    failed = registry.ask("first")
    registry.tell("first", DIVERGED)
    assert repr(failed) not in proposed(registry, 15)


def test_a_config_that_runs_is_not_proposed_beside_itself():
    registry = make_registry(options, rungs=(1,))
    assert len({repr(registry.ask(str(number))) for number in range(4)}) == 4


def test_points_to_try_first_are_tried_though_they_are_known():
    registry = make_registry(options, rungs=(1,))
    known = registry.ask("first")
    registry.study.enqueue_trial(known)
    assert registry.ask("second") == known


def test_what_an_earlier_sweep_tried_may_be_tried_again():
    registry = make_registry(lambda trial: {"a": trial.suggest_int("a", 1, 2)}, rungs=(1,))
    earlier = optuna.create_study()
    for value in (1, 2):
        earlier.enqueue_trial({"a": value})
        trial = earlier.ask({"a": optuna.distributions.IntDistribution(1, 2)})
        trial.set_user_attr(WARM_START, "there")
        earlier.tell(trial, 1.0)
    registry.study.add_trials(earlier.trials)
    assert len(set(proposed(registry, 2))) == 2


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_an_exhaustive_search_is_left_to_itself(monkeypatch):
    monkeypatch.setattr("tune_tf.searchers.sampler_view.draw_new_config", None)
    registry = make_registry(options, rungs=(1,))
    registry.sampler_view.study.sampler = ExhaustiveSampler(
        optuna.samplers.BruteForceSampler(seed=1)
    )
    assert len(set(proposed(registry, 4))) == 4


def test_a_space_with_a_range_costs_no_rehearsal(monkeypatch):
    monkeypatch.setattr("tune_tf.searchers.sampler_view.draw_new_config", None)
    registry = make_registry(lambda trial: {**options(trial), **numbers(trial)}, rungs=(1,))
    assert len(proposed(registry, 5)) == 5


def test_a_sampler_that_draws_only_what_is_known_is_replaced_by_chance():
    names = [f"p{index}" for index in range(4)]
    wide = {name: optuna.distributions.IntDistribution(0, 9) for name in names}

    def suggest(trial):
        return {name: trial.suggest_int(name, 0, 9) for name in names}

    class Stuck(optuna.samplers.RandomSampler):
        def sample_independent(self, study, trial, param_name, param_distribution):
            return 5

    study = optuna.create_study(sampler=Stuck())
    study.tell(study.ask(wide), 1.0)
    known = PointIndex(is_asked).among(study.trials)
    drawn = draw_new_config(study, study._storage, suggest, NO_POINTS, known)
    assert set(drawn.params) == set(names)
    assert set(drawn.params.values()) != {5}


def test_a_seed_decides_what_a_known_config_is_replaced_by():
    twins = [proposed(make_registry(grid, "tpe", rungs=(1,)), 30) for _ in range(2)]
    assert twins[0] == twins[1]


def test_a_trial_with_a_rehearsed_config_has_the_samplers_notes():
    registry = make_registry(options, "nsgaii", rungs=(1,))
    proposed(registry, 4)
    assert all("NSGAIISampler:generation" in trial.system_attrs for trial in registry.study.trials)
