"""The study's state after a session that asked for no trial."""

from types import SimpleNamespace

import pytest

from tune_tf.objective import Objective
from tune_tf.outcome import Outcome
from tune_tf.space import Float, SearchSpace

SPACE = SearchSpace({"rate": Float(0, 1)})


class Tune:
    """Stands for Tune's controller, which the searcher looks for among its callers.

    Args:
        statuses: Tune's status of each trial, by id.
        asks: Whether it had not asked for all trials yet.
        on_run_id: Called when a callback is asked for a run's id.
    """

    def __init__(self, statuses, *, asks=False, on_run_id=lambda trial: None):
        from ray.tune.schedulers import FIFOScheduler

        self.scheduler_alg = FIFOScheduler()
        self.search_alg = SimpleNamespace(is_finished=lambda: not asks)
        self._callbacks = SimpleNamespace(_callbacks=[SimpleNamespace(await_run_id=on_run_id)])
        self._stopper = None
        self._trials = [
            SimpleNamespace(
                trial_id=trial_id,
                status=status,
                config={"rate": 0.5},
                last_result={},
                is_finished=lambda: True,
                should_stop=lambda result: False,
            )
            for trial_id, status in statuses.items()
        ]

    @property
    def __class__(self):
        from ray.tune.execution.tune_controller import TuneController

        return TuneController

    def get_trials(self):
        return self._trials

    def get_trial(self, trial_id):
        return next((trial for trial in self._trials if trial.trial_id == trial_id), None)

    def is_finished(self):
        return self.search_alg.is_finished()

    def call(self, function, *args):
        return function(*args)


@pytest.fixture
def make(tmp_path):
    from tune_tf.searchers import OptunaSearcher

    def make():
        storage = tmp_path / "study.journal"
        return OptunaSearcher(
            SPACE, Objective("acc", "max"), "random", 1, storage=storage, study_name="s"
        )

    return make


@pytest.fixture
def resumed(make, tmp_path):
    """A searcher that goes on with a sweep whose trial a was running when it was killed."""
    first = make()
    first.suggest("a")
    first.save(tmp_path / "state.pkl")
    first.on_trial_result("a", {"acc": 0.5, "training_iteration": 1})
    second = make()
    second.restore(tmp_path / "state.pkl")
    return second


def states(searcher):
    return [trial.state.name for trial in searcher.study.trials]


@pytest.mark.parametrize(
    "outcomes", [{"a": Outcome.INTERRUPTED}, {}], ids=["interrupted", "not begun again"]
)
def test_a_trial_that_an_interrupt_stopped_is_left_running(resumed, outcomes):
    Tune({"a": "TERMINATED"}).call(resumed.finish, outcomes)
    assert states(resumed) == ["RUNNING"]


def test_an_end_that_the_study_lost_is_told(resumed):
    Tune({"a": "TERMINATED"}).call(resumed.finish, {"a": Outcome.OUT_OF_BUDGET})
    assert states(resumed) == ["PRUNED"]


def test_ends_may_be_noted_while_they_are_told(resumed):
    outcomes = {"a": Outcome.OUT_OF_BUDGET, "b": Outcome.COMPLETED}

    def note(trial):
        outcomes.pop("b", None)

    tune = Tune({"a": "TERMINATED"}, on_run_id=note)
    tune.call(resumed.finish, outcomes)
    assert states(resumed) == ["PRUNED"]


@pytest.mark.parametrize(("asks", "state"), [(True, "RUNNING"), (False, "FAIL")])
def test_orphaned_trials_fail_only_if_tune_asks_for_no_more_trials(make, asks, state):
    make().suggest("forgotten")
    searcher = make()
    Tune({}, asks=asks).call(searcher.finish, {})
    assert states(searcher) == [state]


def test_a_result_that_was_shown_after_the_last_save_was_not_stopped_at(resumed):
    resumed.on_trial_complete("a", {"acc": 0.5, "training_iteration": 1})
    (trial,) = resumed.study.trials
    assert trial.user_attrs["stop_reason"] == "out_of_budget"
