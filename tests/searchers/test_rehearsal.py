import optuna
import pytest
from optuna.storages import InMemoryStorage

from tune_tf.objective import Objective
from tune_tf.outcome import Outcome
from tune_tf.searchers.deduplication import NO_POINTS, Points, deduplicate, tried
from tune_tf.searchers.objectives import SearchObjectives
from tune_tf.searchers.samplers.exhaustive import ExhaustiveSampler
from tune_tf.searchers.storage.study_storage import open_study
from tune_tf.searchers.trial_attrs import WARM_START
from tune_tf.searchers.trial_outcome import TrialOutcome
from tune_tf.searchers.trial_registry import SamplerView, TrialRegistry

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


def make_book(suggest, sampler="random", rungs=()):
    storage = InMemoryStorage()
    study = open_study(storage, "s", SearchObjectives((Objective("loss", "min"),)))
    study.sampler = SAMPLERS[sampler]()
    book = TrialRegistry(study, storage, suggest, desk=SamplerView(study, storage, lambda: rungs))
    book.find_orphans()
    return book


def proposed(book, num_trials):
    """Return configs, as texts, of trials that all end well."""
    configs = []
    for number in range(num_trials):
        configs.append(repr(book.ask(str(number))))
        book.tell(str(number), TrialOutcome(Outcome.COMPLETED, float(len(configs)), 1))
    return configs


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_a_config_that_gave_nan_is_not_proposed_again(sampler):
    book = make_book(options, sampler)
    failed = book.ask("first")
    book.tell("first", DIVERGED)
    for number in range(12):
        assert book.ask(str(number)) != failed
        book.tell(str(number), TrialOutcome(Outcome.COMPLETED, 1.0, 1))
    assert len(book.study.trials) == 13


def test_a_config_that_gave_nan_before_a_resume_is_not_proposed_again():
    book = make_book(options)
    failed = book.ask("first")
    book.tell("first", DIVERGED)
    again = TrialRegistry(book.study, book._storage, options, book.page.copy())
    again.find_orphans()
    assert all(again.ask(str(number)) != failed for number in range(12))


def test_where_everything_gave_nan_a_sweep_goes_on():
    book = make_book(lambda trial: {"a": trial.suggest_categorical("a", [1])})
    for number in range(3):
        assert book.ask(str(number)) == {"a": 1}
        book.tell(str(number), DIVERGED)


def test_what_is_drawn_from_a_range_costs_no_rehearsal(monkeypatch):
    monkeypatch.setattr("tune_tf.searchers.trial_registry.rehearse", None)
    book = make_book(numbers)
    first = book.ask("first")
    book.tell("first", DIVERGED)
    assert book.ask("second") != first


def test_what_failed_for_another_reason_may_be_proposed_again(monkeypatch):
    monkeypatch.setattr("tune_tf.searchers.trial_registry.rehearse", None)
    book = make_book(options)
    book.ask("first")
    book.tell("first", TrialOutcome(Outcome.ERROR, cause="node died"))
    assert book.ask("second")


def test_a_nan_after_the_config_was_changed_is_not_held_against_the_first_config(monkeypatch):
    book = make_book(options)
    book.ask("first")
    book.report("first", 1, 0.5)
    book.note_change("first", 1)
    book.tell("first", DIVERGED, {"config_changed_at": 1})
    monkeypatch.setattr("tune_tf.searchers.trial_registry.rehearse", None)
    assert book.ask("second")


def grid(trial):
    return {
        "a": trial.suggest_categorical("a", ["x", None, 1]),
        "b": trial.suggest_int("b", 1, 4),
        "c": trial.suggest_float("c", 0, 1, step=0.5),
    }


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_where_a_scheduler_compares_trials_no_config_of_a_finite_space_is_tried_twice(sampler):
    configs = proposed(make_book(grid, sampler, rungs=(1, 3)), 36)
    assert len(set(configs)) == 36


def test_without_rungs_configs_repeat_as_optuna_has_it():
    plain = optuna.create_study(sampler=SAMPLERS["tpe"]())
    expected = []
    for number in range(36):
        trial = plain.ask()
        expected.append(repr(grid(trial)))
        plain.tell(trial, float(number + 1))
    assert proposed(make_book(grid, "tpe"), 36) == expected
    assert len(set(expected)) < 36


def test_with_rungs_the_first_proposals_are_optunas_own():
    plain = optuna.create_study(sampler=SAMPLERS["random"]())
    expected = [repr(grid(plain.ask())) for _ in range(4)]
    assert proposed(make_book(grid, rungs=(1,)), 4) == expected


def test_once_every_config_was_tried_a_sweep_goes_on():
    book = make_book(options, rungs=(1,))
    assert len(set(proposed(book, 6))) == 4


def test_once_every_config_was_tried_only_those_that_gave_nan_are_left_out():
    book = make_book(options, rungs=(1,))
    failed = book.ask("first")
    book.tell("first", DIVERGED)
    assert repr(failed) not in proposed(book, 15)


def test_a_config_that_runs_is_not_proposed_beside_itself():
    book = make_book(options, rungs=(1,))
    assert len({repr(book.ask(str(number))) for number in range(4)}) == 4


def test_points_to_try_first_are_tried_though_they_are_known():
    book = make_book(options, rungs=(1,))
    known = book.ask("first")
    book.study.enqueue_trial(known)
    assert book.ask("second") == known


def test_what_an_earlier_sweep_tried_may_be_tried_again():
    book = make_book(lambda trial: {"a": trial.suggest_int("a", 1, 2)}, rungs=(1,))
    earlier = optuna.create_study()
    for value in (1, 2):
        earlier.enqueue_trial({"a": value})
        trial = earlier.ask({"a": optuna.distributions.IntDistribution(1, 2)})
        trial.set_user_attr(WARM_START, "there")
        earlier.tell(trial, 1.0)
    book.study.add_trials(earlier.trials)
    assert len(set(proposed(book, 2))) == 2


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_an_exhaustive_search_is_left_to_itself(monkeypatch):
    monkeypatch.setattr("tune_tf.searchers.trial_registry.rehearse", None)
    book = make_book(options, rungs=(1,))
    book.desk.study.sampler = ExhaustiveSampler(optuna.samplers.BruteForceSampler(seed=1))
    assert len(set(proposed(book, 4))) == 4


def test_a_space_with_a_range_costs_no_rehearsal(monkeypatch):
    monkeypatch.setattr("tune_tf.searchers.trial_registry.rehearse", None)
    book = make_book(lambda trial: {**options(trial), **numbers(trial)}, rungs=(1,))
    assert len(proposed(book, 5)) == 5


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
    known = Points(tried).among(study.trials)
    drawn = deduplicate(study, study._storage, suggest, NO_POINTS, known)
    assert set(drawn.params) == set(names)
    assert set(drawn.params.values()) != {5}


def test_a_seed_decides_what_a_known_config_is_replaced_by():
    twins = [proposed(make_book(grid, "tpe", rungs=(1,)), 30) for _ in range(2)]
    assert twins[0] == twins[1]


def test_a_trial_with_a_rehearsed_config_has_the_samplers_notes():
    book = make_book(options, "nsgaii", rungs=(1,))
    proposed(book, 4)
    assert all("NSGAIISampler:generation" in trial.system_attrs for trial in book.study.trials)
