"""The journal storage lists trials as Optuna's own does, at a cost that stays as a study grows."""

import sys

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import FloatDistribution, IntDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.study import StudyDirection
from optuna.testing.pytest_storages import StorageTestCase
from optuna.trial import TrialState, create_trial

from tune_tf.objective import Objective
from tune_tf.searchers import OptunaSearcher
from tune_tf.searchers.storage.study_storage import open_storage

WAITING, RUNNING, COMPLETE = TrialState.WAITING, TrialState.RUNNING, TrialState.COMPLETE
LISTED = (None, (WAITING,), (WAITING, RUNNING), (RUNNING, COMPLETE), (TrialState.FAIL,), ())


@pytest.fixture
def storage(tmp_path):
    return open_storage(tmp_path / "study.journal")


class TestContract(StorageTestCase):
    """Optuna's own tests of a storage."""


step = st.tuples(
    st.sampled_from(["ask", "enqueue", "start", "report", "end"]),
    st.booleans(),  # by another process
    st.integers(0, 1),  # study
    st.integers(0, 9),  # trial
    st.booleans(),  # listed afterwards
)


@given(st.lists(step, max_size=30))
def test_trials_are_those_of_optunas_own_storage_whoever_wrote_them(tmp_path_factory, steps):
    path = tmp_path_factory.mktemp("journal") / "study.journal"
    storage = open_storage(path)
    other = JournalStorage(JournalFileBackend(str(path)))
    for name in ("a", "b"):
        storage.create_new_study([StudyDirection.MINIMIZE], name)
    for action, elsewhere, study_id, number, listed in steps:
        take(other if elsewhere else storage, action, study_id, number)
        for states in LISTED if listed else ():
            for study in (0, 1):
                expected = other.get_all_trials(study, states=states)
                assert storage.get_all_trials(study, states=states) == expected


def take(storage, action, study_id, number):
    if action in ("ask", "enqueue"):
        state = RUNNING if action == "ask" else WAITING
        storage.create_new_trial(study_id, create_trial(state=state))
        return
    unfinished = storage.get_all_trials(study_id, states=(WAITING, RUNNING))
    if not unfinished:
        return
    trial_id = unfinished[number % len(unfinished)]._trial_id
    if action == "start":
        storage.set_trial_state_values(trial_id, RUNNING)
    elif action == "report":
        storage.set_trial_param(trial_id, "x", 0.5, FloatDistribution(0, 1))
        storage.set_trial_intermediate_value(trial_id, number, 0.5)
    else:
        storage.set_trial_state_values(trial_id, COMPLETE, [0.5])


def test_an_unchanged_journal_is_not_opened(storage, monkeypatch):
    study = optuna.create_study(storage=storage, study_name="s")
    study.ask()
    monkeypatch.setattr("builtins.open", None)
    assert len(study.get_trials()) == 1


SPACES = {"continuous": FloatDistribution(0, 1), "discrete": IntDistribution(1, 10**9)}


@pytest.mark.parametrize("distribution", SPACES.values(), ids=SPACES)
def test_a_trial_costs_as_many_steps_in_a_study_of_500_as_in_one_of_50(tmp_path, distribution):
    searcher = OptunaSearcher(
        {"x": distribution},
        Objective("loss", "min"),
        "random",
        storage=tmp_path / "study.journal",
        study_name="s",
        rungs=lambda: (1, 3),  # so that no config is drawn twice
    )
    early, late = range(40, 50), range(490, 500)
    lines = {}
    for number in range(500):
        if number in early or number in late:
            lines[number] = num_lines(lambda n=number: run_trial(searcher, n))
        else:
            run_trial(searcher, number)
    # The least of some, as garbage collection may run in between.
    assert min(map(lines.get, early)) == min(map(lines.get, late))


def run_trial(searcher, number):
    trial_id = f"t{number}"
    config = searcher.suggest(trial_id)
    result = {"loss": config["x"], "training_iteration": 1, "done": True}
    searcher.on_trial_result(trial_id, result)
    searcher.on_trial_complete(trial_id, result)


def num_lines(call):
    """Return how many lines of Python a call executes."""
    count, before = 0, sys.gettrace()

    def trace(frame, event, arg):
        nonlocal count
        count += event == "line"
        return trace

    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count
