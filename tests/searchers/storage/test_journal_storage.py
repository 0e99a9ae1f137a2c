"""The journal storage lists trials as Optuna's own does, at a cost that stays as a study grows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import FloatDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.study import StudyDirection
from optuna.testing.pytest_storages import StorageTestCase
from optuna.trial import TrialState, create_trial

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
