import math

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.distributions import FloatDistribution
from optuna.samplers import RandomSampler, TPESampler
from optuna.storages import InMemoryStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from tune_tf.outcome import CONFIG_CHANGED_AT
from tune_tf.searchers.storage.filtered import FilteredStorage
from tune_tf.searchers.storage.visibility import (
    UNFILTERED,
    FinalValues,
    HighestRung,
    PredictedValues,
    RungValues,
    Unfiltered,
    finite_values,
    values_at_rungs,
)

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


def shown(study, visibility, rungs=RUNGS):
    """Return state, curve and value of each trial as it is shown."""
    storage = FilteredStorage(study._storage, lambda: rungs, visibility)
    return [seen(trial) for trial in storage.get_all_trials(study._study_id)]


def seen(trial):
    return trial.state, trial.intermediate_values, trial.value


CASES = {
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
    assert shown(study, RungValues()) == [expected]


def test_a_running_trial_before_the_first_rung_is_running():
    study = new_study()
    add(study, {1: 0.5, 2: 0.4}, RUNNING)
    assert shown(study, RungValues(), rungs=(3, 9)) == [(RUNNING, {1: 0.5, 2: 0.4}, None)]


def test_a_trial_stopped_before_the_first_rung_has_no_value():
    study = new_study()
    add(study, {1: 0.5, 2: 0.4}, PRUNED)
    assert shown(study, RungValues(), rungs=(3, 9)) == [(PRUNED, {}, None)]


@pytest.mark.parametrize(
    "visibility", [RungValues(), HighestRung(), PredictedValues(), UNFILTERED], ids=str
)
def test_without_rungs_trials_are_shown_as_they_are_stored(visibility):
    study = new_study()
    for state in (COMPLETE, PRUNED, RUNNING, FAIL):
        add(study, curve_to(4), state)
    stored = study.get_trials()
    storage = FilteredStorage(study._storage, visibility=visibility)
    assert storage.get_all_trials(study._study_id) == stored


@pytest.mark.parametrize("rungs", [(), RUNGS], ids=["no rungs", "rungs"])
@pytest.mark.parametrize("visibility", [RungValues(), HighestRung(min_values=1)], ids=str)
def test_nan_is_never_shown_of_a_stopped_trial(visibility, rungs):
    study = new_study()
    add(study, {1: 0.5, 3: math.nan, 9: math.inf}, PRUNED)
    ((_, curve, value),) = shown(study, visibility, rungs)
    assert all(map(math.isfinite, [*curve.values(), value]))


@pytest.mark.parametrize(
    ("curve", "rungs", "expected"),
    [
        pytest.param(
            {1: 0.1, 2: 0.2, 3: 0.3, 4: 0.4}, (1, 3, 9), {1: 0.1, 3: 0.3}, id="each epoch"
        ),
        pytest.param({2: 0.2, 4: 0.4, 10: 0.9}, (1, 3, 9), {1: 0.2, 3: 0.4, 9: 0.9}, id="rarely"),
        pytest.param({5: 0.5}, (1, 3, 9), {3: 0.5}, id="the highest rung passed"),
        pytest.param({3: 0.3}, (1, 3), {3: 0.3}, id="first at the next rung"),
        pytest.param({1: 0.1, 3: math.nan, 4: 0.4}, (1, 3), {1: 0.1, 3: 0.4}, id="nan at a rung"),
        pytest.param({}, (1, 3), {}, id="nothing"),
    ],
)
def test_the_value_at_a_rung_is_the_first_from_there_on(curve, rungs, expected):
    assert values_at_rungs(curve, rungs) == expected


CHANGED = {
    "running": (RUNNING, {1: 0.5, 2: 0.4, 3: 0.3}, 2, (PRUNED, {1: 0.5, 2: 0.4}, 0.4)),
    "finished": (COMPLETE, {1: 0.5, 2: 0.4, 3: 0.3}, 1, (PRUNED, {1: 0.5}, 0.5)),
    "stopped": (PRUNED, {1: 0.5, 2: 0.4, 3: 0.3}, 2, (PRUNED, {1: 0.5, 2: 0.4}, 0.4)),
    "before its first value": (COMPLETE, {3: 0.3}, 2, (FAIL, {}, None)),
}


@pytest.mark.parametrize("visibility", [RungValues(), HighestRung(), UNFILTERED], ids=str)
@pytest.mark.parametrize(("state", "curve", "at", "expected"), CHANGED.values(), ids=CHANGED)
def test_a_trial_counts_up_to_the_moment_its_config_was_changed(
    visibility, state, curve, at, expected
):
    study = new_study()
    add(study, curve, state, changed_at=at)
    assert shown(study, visibility, rungs=()) == [expected]


def test_finite_values_returns_a_finite_curve_without_copying():
    curve = curve_to(3)
    assert finite_values(curve) is curve


def test_completed_trials_without_constraints_count_as_failed():
    study = new_study()
    for state in (COMPLETE, PRUNED, RUNNING):
        add(study, curve_to(2), state)
    bound = study.ask()
    bound.set_constraint("size", -1.0)
    study.tell(bound, 0.5)
    told = [state for state, _, _ in shown(study, UNFILTERED)]
    constrained = [state for state, _, _ in shown(study, Unfiltered(constrained=True))]
    assert told == [COMPLETE, PRUNED, RUNNING, COMPLETE]
    assert constrained == [FAIL, PRUNED, RUNNING, COMPLETE]


@pytest.mark.parametrize("visibility", [UNFILTERED, FinalValues()], ids=str)
def test_rungs_are_not_asked_for_where_nothing_depends_on_them(visibility):
    def rungs():
        raise AssertionError("asked")

    study = new_study()
    add(study, curve_to(2), RUNNING)
    assert (
        len(FilteredStorage(study._storage, rungs, visibility).get_all_trials(study._study_id)) == 1
    )


def test_a_changed_config_has_values_at_rungs_up_to_then():
    study = new_study()
    add(study, curve_to(9), COMPLETE, changed_at=4)
    assert shown(study, RungValues()) == [(PRUNED, {1: 0.5, 3: 0.5}, 0.5)]


def test_trials_at_the_highest_full_rung_are_shown_as_complete():
    study = new_study()
    add(study, curve_to(9, 0.9), COMPLETE)
    add(study, curve_to(4, 0.4), RUNNING)
    add(study, curve_to(3, 0.3), PRUNED)
    add(study, curve_to(1, 0.1), PRUNED)
    add(study, {}, RUNNING)
    add(study, {}, FAIL)
    assert shown(study, HighestRung(min_values=3)) == [
        (COMPLETE, {}, 0.9),
        (COMPLETE, {}, 0.4),
        (COMPLETE, {}, 0.3),
        (RUNNING, {}, None),
        (RUNNING, {}, None),
        (FAIL, {}, None),
    ]


def test_a_finished_trial_counts_with_its_value_at_that_rung():
    study = new_study()
    add(study, {1: 0.9, 3: 0.5, 9: 0.1}, COMPLETE)
    add(study, {1: 0.8, 3: 0.4}, PRUNED)
    assert [value for _, _, value in shown(study, HighestRung(2))] == [0.5, 0.4]


def test_a_trial_completed_below_the_rung_counts_with_its_last_value():
    study = new_study()
    add(study, {1: 0.9, 2: 0.2}, COMPLETE)
    for _ in range(2):
        add(study, curve_to(3), PRUNED)
    study.add_trial(optuna.trial.create_trial(value=0.7))
    assert [value for _, _, value in shown(study, HighestRung(2))] == [0.2, 0.5, 0.5, 0.7]


def test_as_long_as_no_rung_has_enough_values_nobody_is_good():
    study = new_study()
    for last in (1, 3, 5):
        add(study, curve_to(last), PRUNED)
    assert shown(study, HighestRung(min_values=4)) == [(RUNNING, {}, None)] * 3


def test_ended_trials_are_shown_anew_when_a_higher_rung_has_enough_values():
    study = new_study()
    storage = FilteredStorage(study._storage, lambda: RUNGS, HighestRung(2))
    states = []
    for last in (1, 1, 3, 3):
        add(study, curve_to(last), PRUNED)
        states.append([trial.state for trial in storage.get_all_trials(study._study_id)])
    assert states == [
        [RUNNING],
        [COMPLETE, COMPLETE],
        [COMPLETE, COMPLETE, COMPLETE],
        [RUNNING, RUNNING, COMPLETE, COMPLETE],
    ]


def test_a_running_trial_that_goes_on_counts_once_at_each_rung():
    study = new_study()
    storage = FilteredStorage(study._storage, lambda: RUNGS, HighestRung(2))
    trial = add(study, {1: 0.5}, RUNNING)
    storage.get_all_trials(study._study_id)
    trial.report(0.4, 2)
    assert [each.state for each in storage.get_all_trials(study._study_id)] == [RUNNING]


def test_stopped_and_running_trials_are_shown_with_the_values_they_would_end_with():
    study = new_study()
    add(study, {1: 1.0, 3: 0.8, 9: 0.5}, COMPLETE)
    add(study, {1: 1.2, 3: 0.9, 9: 0.7}, COMPLETE)
    add(study, {1: 1.1, 3: 0.6}, PRUNED)  # changes: -0.2, -0.3, -0.5, then -0.3, -0.2
    add(study, {1: 2.0}, PRUNED)
    add(study, {1: 0.9, 2: 0.85}, RUNNING)
    add(study, {}, RUNNING)
    add(study, {}, FAIL)

    states, curves, values = zip(*shown(study, PredictedValues(min_pairs=2)), strict=True)
    assert states == (COMPLETE, COMPLETE, COMPLETE, COMPLETE, COMPLETE, RUNNING, FAIL)
    assert not any(curves[2:])
    assert values[:5] == pytest.approx((0.5, 0.7, 0.6 - 0.25, 2.0 - 0.55, 0.9 - 0.55))


def test_a_trial_is_shown_as_it_is_as_long_as_too_few_have_gone_on():
    study = new_study()
    add(study, {1: 1.0, 3: 0.8}, PRUNED)
    add(study, {1: 1.2, 3: 0.9}, RUNNING)
    add(study, {1: 2.0}, PRUNED)

    states = [state for state, _, _ in shown(study, PredictedValues(min_pairs=3))]
    assert states == [PRUNED, RUNNING, PRUNED]


def test_a_predicted_value_follows_the_others():
    study = new_study()
    storage = FilteredStorage(study._storage, lambda: RUNGS, PredictedValues(min_pairs=1))
    add(study, {1: 1.0, 3: 0.8}, PRUNED)
    add(study, {1: 2.0}, PRUNED)
    first = storage.get_all_trials(study._study_id)[1].value
    add(study, {1: 1.0, 3: 0.2}, PRUNED)
    second = storage.get_all_trials(study._study_id)[1].value
    assert (first, second) == pytest.approx((1.8, 1.5))


def test_with_several_objectives_no_curves_are_shown():
    study = new_study()
    add(study, curve_to(3), PRUNED)
    add(study, curve_to(3), COMPLETE)
    assert shown(study, FinalValues()) == [(PRUNED, {}, None), (COMPLETE, curve_to(3), 0.5)]


def test_good_is_the_best_tenth_at_the_highest_rung_and_bad_all_else(monkeypatch):
    """What :class:`HighestRung` counts on in Optuna's TPE."""
    sets = {}
    build = TPESampler._build_parzen_estimator

    def spy(self, study, search_space, trials, handle_below):
        sets["good" if handle_below else "bad"] = [trial.number for trial in trials]
        return build(self, study, search_space, trials, handle_below)

    monkeypatch.setattr(TPESampler, "_build_parzen_estimator", spy)
    truth = new_study()
    for index in range(20):
        add(truth, {1: 0.5, 3: 1 - index / 20}, PRUNED)
    add(truth, {1: 0.0}, PRUNED)
    add(truth, {}, RUNNING)
    sampler = TPESampler(seed=0, multivariate=False)
    storage = FilteredStorage(truth._storage, lambda: RUNGS, HighestRung())
    study = optuna.load_study(study_name="s", storage=storage, sampler=sampler)
    study.ask({"x": FloatDistribution(0, 1)})
    assert sets == {"good": [18, 19], "bad": [*range(18), 20, 21]}


def test_a_trial_by_its_id_is_the_truth():
    study = new_study()
    trial = add(study, curve_to(4), RUNNING)
    storage = FilteredStorage(study._storage, lambda: RUNGS)
    assert storage.get_trial(trial._trial_id).state is RUNNING
    assert storage.get_n_trials(study._study_id, PRUNED) == 0


def test_a_study_over_it_is_asked_and_told_as_any_other():
    storage = InMemoryStorage()
    study = new_study(FilteredStorage(storage, lambda: RUNGS))
    add(study, curve_to(4), PRUNED)
    trial = add(study, curve_to(9, 0.1), COMPLETE)
    study.set_user_attr("a", 1)
    study.enqueue_trial({"x": 0.25})
    assert study.ask({"x": FloatDistribution(0, 1)}).params == {"x": 0.25}
    truth = optuna.load_study(study_name="s", storage=storage)
    assert [seen(trial) for trial in truth.trials] == [
        (PRUNED, curve_to(4), 0.5),
        (COMPLETE, curve_to(9, 0.1), 0.1),
        (RUNNING, {}, None),
    ]
    assert study.best_trial.number == trial.number
    assert truth.user_attrs == {"a": 1}


def test_a_study_is_deleted_through_it():
    storage = FilteredStorage(InMemoryStorage())
    new_study(storage)
    optuna.delete_study(study_name="s", storage=storage)
    assert storage.get_all_studies() == []


def test_what_is_shown_is_a_copy_where_one_is_asked_for():
    study = new_study()
    add(study, curve_to(4), RUNNING)
    storage = FilteredStorage(study._storage, lambda: RUNGS)
    storage.get_all_trials(study._study_id, deepcopy=True)[0].params["x"] = 9
    storage.get_all_trials(study._study_id, deepcopy=False).clear()
    (trial,) = storage.get_all_trials(study._study_id, deepcopy=False)
    assert trial.params["x"] != 9


def test_trials_are_chosen_by_the_state_they_are_shown_in():
    study = new_study()
    add(study, curve_to(4), RUNNING)
    add(study, {}, RUNNING)
    storage = FilteredStorage(study._storage, lambda: RUNGS)
    numbers = {
        state: [t.number for t in storage.get_all_trials(study._study_id, states=(state,))]
        for state in (PRUNED, RUNNING, TrialState.WAITING)
    }
    assert numbers == {PRUNED: [0], RUNNING: [1], TrialState.WAITING: []}


def test_rungs_that_change_are_followed():
    study = new_study()
    add(study, curve_to(9), PRUNED)
    rungs = [1, 3]
    storage = FilteredStorage(study._storage, lambda: rungs)
    assert [*storage.get_all_trials(study._study_id)[0].intermediate_values] == [1, 3]
    rungs.append(9)
    assert [*storage.get_all_trials(study._study_id)[0].intermediate_values] == [1, 3, 9]


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
    storage = FilteredStorage(study._storage, lambda: RUNGS)
    before = storage.get_all_trials(study._study_id, deepcopy=False)
    running.report(0.1, 3)
    after = storage.get_all_trials(study._study_id, deepcopy=False)
    assert after[0] is before[0]
    assert seen(after[1]) == (PRUNED, {1: 0.5, 3: 0.1}, 0.1)


def test_a_parameter_of_an_unknown_trial_is_refused():
    storage = FilteredStorage(InMemoryStorage())
    with pytest.raises(KeyError, match="No trial with trial_id 7"):
        storage.set_trial_param(7, "x", 0.5, FloatDistribution(0, 1))


steps = st.one_of(
    st.just(("ask",)),
    st.tuples(st.just("report"), st.integers(0, 5), st.integers(1, 10), st.floats(-1, 1)),
    st.tuples(st.just("change"), st.integers(0, 5), st.integers(1, 10)),
    st.tuples(st.just("end"), st.integers(0, 5), st.sampled_from([COMPLETE, PRUNED, FAIL])),
)


@given(
    st.lists(steps, max_size=30),
    st.sampled_from(
        [RungValues(), HighestRung(min_values=2), PredictedValues(1), UNFILTERED, FinalValues()]
    ),
)
@settings(max_examples=60, deadline=None)
def test_looking_often_shows_what_looking_once_at_the_end_does(steps, visibility):
    truth = new_study()
    often = FilteredStorage(truth._storage, lambda: RUNGS, visibility)
    trials = []
    for what, *given_ in steps:
        running = [trial for trial in trials if not truth.trials[trial.number].state.is_finished()]
        if what == "ask":
            trials.append(truth.ask({"x": FloatDistribution(0, 1)}))
        elif running:
            act(truth, running[given_[0] % len(running)], what, given_[1:])
        often.get_all_trials(truth._study_id)
    once = FilteredStorage(truth._storage, lambda: RUNGS, visibility)
    expected = once.get_all_trials(truth._study_id)
    assert often.get_all_trials(truth._study_id) == expected
    assert [trial.number for trial in expected] == [trial.number for trial in trials]


def act(study, trial, what, given_):
    """Do one thing to a running trial."""
    match what:
        case "report":
            step, value = given_
            study._storage.set_trial_intermediate_value(trial._trial_id, step, value)
        case "change":
            trial.set_user_attr(CONFIG_CHANGED_AT, given_[0])
        case "end":
            study.tell(trial, 0.5 if given_[0] is COMPLETE else None, given_[0])
