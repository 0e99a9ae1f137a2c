import optuna
import pytest
from optuna.storages import InMemoryStorage

from tune_tf.objective import Objective
from tune_tf.outcome import Outcome
from tune_tf.searchers.book import TrialBook
from tune_tf.searchers.goals import Goals
from tune_tf.searchers.storages import open_study
from tune_tf.searchers.verdict import Verdict

DIVERGED = Verdict(Outcome.DIVERGED, cause="loss is nan")


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


def make_book(suggest, sampler="random"):
    storage = InMemoryStorage()
    study = open_study(storage, "s", Goals((Objective("loss", "min"),)))
    study.sampler = SAMPLERS[sampler]()
    book = TrialBook(study, storage, suggest)
    book.find_orphans()
    return book


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_a_config_that_gave_nan_is_not_proposed_again(sampler):
    book = make_book(options, sampler)
    failed = book.ask("first")
    book.tell("first", DIVERGED)
    for number in range(12):
        assert book.ask(str(number)) != failed
        book.tell(str(number), Verdict(Outcome.COMPLETED, 1.0, 1))
    assert len(book.study.trials) == 13


def test_a_config_that_gave_nan_before_a_resume_is_not_proposed_again():
    book = make_book(options)
    failed = book.ask("first")
    book.tell("first", DIVERGED)
    again = TrialBook(book.study, book._storage, options, book.page.copy())
    again.find_orphans()
    assert all(again.ask(str(number)) != failed for number in range(12))


def test_where_everything_gave_nan_a_sweep_goes_on():
    book = make_book(lambda trial: {"a": trial.suggest_categorical("a", [1])})
    for number in range(3):
        assert book.ask(str(number)) == {"a": 1}
        book.tell(str(number), DIVERGED)


def test_what_is_drawn_from_a_range_costs_no_rehearsal(monkeypatch):
    monkeypatch.setattr("tune_tf.searchers.book.rehearse", None)
    book = make_book(numbers)
    first = book.ask("first")
    book.tell("first", DIVERGED)
    assert book.ask("second") != first


def test_what_failed_for_another_reason_may_be_proposed_again(monkeypatch):
    monkeypatch.setattr("tune_tf.searchers.book.rehearse", None)
    book = make_book(options)
    book.ask("first")
    book.tell("first", Verdict(Outcome.ERROR, cause="node died"))
    assert book.ask("second")


def test_a_nan_after_the_config_was_changed_is_not_held_against_the_first_config():
    book = make_book(options)
    book.ask("first")
    book.report("first", 1, 0.5)
    book.note_change("first", 1)
    book.tell("first", DIVERGED, {"config_changed_at": 1})
    assert not book._avoided
