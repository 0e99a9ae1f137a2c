import math

import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.samplers import RandomSampler
from optuna.storages import InMemoryStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from tune_tf.outcome import CONFIG_CHANGED_AT
from tune_tf.searchers.samplers.seen_trials import SeenTrials

COMPLETE, PRUNED, RUNNING, FAIL = (
    TrialState.COMPLETE,
    TrialState.PRUNED,
    TrialState.RUNNING,
    TrialState.FAIL,
)
RUNGS = (1, 3, 9)


def new_study(storage=None):
    return optuna.create_study(
        storage=storage or InMemoryStorage(), study_name="s", sampler=RandomSampler(seed=0)
    )


def add(study, curve, state, *, changed_at=None):
    """Add a trial with a curve, value by step, in a state."""
    trial = study.ask({"x": FloatDistribution(0, 1)})
    for step, value in curve.items():
        trial.report(value, step)
    if changed_at is not None:
        trial.set_user_attr(CONFIG_CHANGED_AT, changed_at)
    if state.is_finished():
        study.tell(trial, curve[max(curve)] if state is COMPLETE else None, state)
    return trial


def curve_to(last, value=0.5):
    """Return a curve over each step up to the last, all of one value."""
    return dict.fromkeys(range(1, last + 1), value)


def shown(study, rungs=RUNGS, num_objectives=1):
    storage = SeenTrials(study._storage, lambda: rungs, num_objectives)
    return [seen(trial) for trial in storage.get_all_trials(study._study_id)]


def seen(trial):
    return trial.state, trial.intermediate_values, trial.value


CASES = {
    "stopped before the first rung": (PRUNED, 0, (PRUNED, {}, None)),
    "finished": (COMPLETE, 9, (COMPLETE, curve_to(9), 0.5)),
    "stopped at a rung": (PRUNED, 3, (PRUNED, {1: 0.5, 3: 0.5}, 0.5)),
    "stopped between rungs": (PRUNED, 5, (PRUNED, {1: 0.5, 3: 0.5}, 0.5)),
    "running past a rung": (RUNNING, 4, (PRUNED, {1: 0.5, 3: 0.5}, 0.5)),
    "running without a value": (RUNNING, 0, (RUNNING, {}, None)),
    "failed": (FAIL, 4, (FAIL, curve_to(4), None)),
}


@pytest.mark.parametrize(("state", "last", "expected"), CASES.values(), ids=CASES)
def test_a_trial_is_shown_at_rungs(state, last, expected):
    study = new_study()
    add(study, curve_to(last), state)
    assert shown(study) == [expected]


def test_nan_is_never_shown_of_a_stopped_trial_and_the_truth_stays():
    study = new_study()
    trial = add(study, {1: 0.5, 3: math.nan, 9: math.inf}, PRUNED)
    assert shown(study) == [(PRUNED, {1: 0.5}, 0.5)]
    running = add(study, curve_to(4), RUNNING)
    storage = SeenTrials(study._storage, lambda: RUNGS)
    assert storage.get_trial(trial._trial_id).intermediate_values.keys() == {1, 3, 9}
    assert storage.get_trial(running._trial_id).state is RUNNING
    found = storage.get_all_trials(study._study_id, states=(PRUNED,))
    assert [each.number for each in found] == [0, 1]


CHANGED = {
    "running": (RUNNING, {1: 0.5, 2: 0.4, 3: 0.3}, 2, (PRUNED, {1: 0.5, 2: 0.4}, 0.4)),
    "finished": (COMPLETE, {1: 0.5, 2: 0.4, 3: 0.3}, 1, (PRUNED, {1: 0.5}, 0.5)),
    "stopped": (PRUNED, {1: 0.5, 2: 0.4, 3: 0.3}, 2, (PRUNED, {1: 0.5, 2: 0.4}, 0.4)),
    "before its first value": (COMPLETE, {3: 0.3}, 2, (FAIL, {}, None)),
}


@pytest.mark.parametrize(("state", "curve", "at", "expected"), CHANGED.values(), ids=CHANGED)
def test_a_trial_counts_up_to_the_moment_its_config_was_changed(state, curve, at, expected):
    study = new_study()
    add(study, curve, state, changed_at=at)
    assert shown(study, rungs=()) == [expected]


STORAGES = {
    "memory": lambda path: InMemoryStorage(),
    "journal": lambda path: JournalStorage(JournalFileBackend(str(path / "study.log"))),
    "database": lambda path: RDBStorage(f"sqlite:///{path}/study.db"),
}


@pytest.mark.parametrize("open_storage", STORAGES.values(), ids=STORAGES)
def test_ended_trials_are_looked_at_once_only(open_storage, tmp_path):
    study = new_study(open_storage(tmp_path))
    add(study, curve_to(4), PRUNED)
    running = add(study, curve_to(1), RUNNING)
    storage = SeenTrials(study._storage, lambda: RUNGS)
    before = storage.get_all_trials(study._study_id, deepcopy=False)
    running.report(0.1, 3)
    after = storage.get_all_trials(study._study_id, deepcopy=False)
    assert after[0] is before[0]
    assert seen(after[1]) == (PRUNED, {1: 0.5, 3: 0.1}, 0.1)
