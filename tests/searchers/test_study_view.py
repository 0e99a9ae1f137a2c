"""The copy of a study in memory in a storage that others read."""

import logging
import sqlite3
import time

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from searchers_by_hand import LOSS
from test_replay import Sweep, run_all

from tune_tf.errors import SweepConflictError
from tune_tf.outcome import Outcome
from tune_tf.searchers import StudyView
from tune_tf.searchers.criteria import SearchCriteria
from tune_tf.space import Choice, Float, SearchSpace

SPACE = SearchSpace({"rate": Float(0, 1), "shape": Choice([(1, 2), (3, 4)])})
LOCATIONS = {"database": "sqlite:///{}/optuna.db", "journal": "{}/optuna.journal"}


def open_view(searcher, location, name="sweep", **settings):
    view = StudyView(
        searcher.study, SearchCriteria((LOSS,)), location, name, period_s=0.01, **settings
    )
    return view.__enter__()


def close(view):
    view.__exit__(None, None, None)


def seen(location, name="sweep"):
    """Return what a stranger reads."""
    plain = location if "://" in location else JournalStorage(JournalFileBackend(location))
    return [content_of(trial) for trial in optuna.load_study(study_name=name, storage=plain).trials]


def content_of(trial):
    return (
        trial.number,
        trial.state.name,
        trial.values,
        trial.params,
        trial.distributions,
        trial.intermediate_values,
        trial.user_attrs,
        trial.constraints,
    )


def contents(searcher):
    return [content_of(trial) for trial in searcher.study.trials if trial.state.name != "WAITING"]


def wait_for(condition):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture(params=LOCATIONS.values(), ids=LOCATIONS)
def location(request, tmp_path):
    return request.param.format(tmp_path)


def test_a_running_sweep_is_seen_and_one_that_goes_on_continues_its_copy(location):
    sweep = Sweep(SPACE, points_to_evaluate=[{"rate": 0.5, "shape": (1, 2)}] * 14)
    view = open_view(sweep.searcher, location)
    sweep.run(None)
    view.on_step_end()
    wait_for(lambda: seen(location) == contents(sweep.searcher))
    run_all(sweep)
    close(view)
    before = contents(sweep.searcher)
    assert seen(location) == before

    resumed = sweep.replayed()
    view = open_view(resumed, location)
    last = {"training_iteration": 3, "loss": 0.05, "stop_reason": "completed", "done": True}
    resumed.on_trial_complete("t0", last)
    resumed.suggest("new")
    close(view)
    assert seen(location) == contents(resumed)
    assert len(seen(location)) == len(before) + 1
    assert seen(location)[1:10] == before[1:10]


def test_what_a_kill_would_undo_is_not_copied(tmp_path):
    location = LOCATIONS["database"].format(tmp_path)
    sweep = Sweep(SPACE)
    view = open_view(sweep.searcher, location)
    sweep.run(Outcome.COMPLETED)
    time.sleep(0.1)
    assert seen(location) == []
    close(view)
    assert len(seen(location)) == 1


def test_a_study_of_another_sweep_is_refused(location):
    first, second = Sweep(SPACE), Sweep(SPACE)
    view = open_view(first.searcher, location)
    first.run(Outcome.COMPLETED)
    close(view)
    with pytest.raises(
        SweepConflictError, match=r"has trials of another sweep: set another .*name"
    ):
        open_view(second.searcher, location)
    close(open_view(second.searcher, location, "other"))
    assert seen(location, "other") == []


def test_a_copy_that_was_deleted_is_made_anew(tmp_path):
    location = LOCATIONS["database"].format(tmp_path)
    sweep = Sweep(SPACE)
    view = open_view(sweep.searcher, location)
    sweep.run(Outcome.COMPLETED)
    view.on_step_end()
    wait_for(lambda: seen(location))
    optuna.delete_study(study_name="sweep", storage=location)
    sweep.run(Outcome.COMPLETED)
    close(view)
    assert seen(location) == contents(sweep.searcher)


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_storage_that_is_away_is_tried_again_and_told_of(comes_back, tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    location = f"sqlite:///{tmp_path}/optuna.db?timeout=0.01"
    sweep = Sweep(SPACE)
    view = open_view(sweep.searcher, location, patience_s=20 if comes_back else 0.5)
    other = sqlite3.connect(tmp_path / "optuna.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    sweep.run(Outcome.COMPLETED)
    view.on_step_end()
    wait_for(lambda: "is behind, and is tried again" in caplog.text)
    if comes_back:
        other.close()
    close(view)
    other.close()
    assert ("lacks the last results" in caplog.text) is not comes_back
    assert len(seen(location)) == comes_back
    assert [record.name for record in caplog.records].count(StudyView.__module__) == (
        1 if comes_back else 2
    )
