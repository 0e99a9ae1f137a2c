"""A searcher that is saved, copied, killed and restored."""

import pickle

import pytest
from ray import cloudpickle
from searchers_by_hand import CONDITIONAL, CONTINUOUS, make, names, run

from tune_tf.errors import SweepConflictError
from tune_tf.objective import Objective
from tune_tf.space import Float, SearchSpace


@pytest.fixture(params=["memory", "journal", "sqlite"])
def storage(request, tmp_path):
    return {
        "memory": None,
        "journal": tmp_path / "study.journal",
        "sqlite": f"sqlite:///{tmp_path / 'study.db'}",
    }[request.param]


def test_a_sweep_saved_and_restored_draws_as_if_it_had_not_been(storage, tmp_path):
    whole = run(make(CONDITIONAL), names(24))
    first = make(CONDITIONAL, storage=storage)
    begun = run(first, names(13))
    first.save(tmp_path / "state.pkl")
    second = make(CONDITIONAL, storage=storage)
    second.restore(tmp_path / "state.pkl")
    assert begun + run(second, names(11, 13)) == whole


def test_a_new_searcher_on_a_study_goes_on_with_it_and_repeats_no_draw(tmp_path):
    settings = {"storage": tmp_path / "study.journal", "study_name": "sweep"}
    done = run(make(**settings), names(3))
    second = make(**settings)
    configs = run(second, names(4, 3))
    assert len({config["rate"] for config in [*done, *configs]}) == 7
    assert [trial.state.name for trial in second.study.trials] == ["COMPLETE"] * 7


@pytest.mark.parametrize("sampler", ["tpe", "grid"])
def test_a_pickled_searcher_goes_on(storage, sampler):
    searcher = make(
        SearchSpace({"rate": Float(0.1, 1, step=0.1)}), sampler=sampler, storage=storage
    )
    done = run(searcher, names(3))
    left = searcher.suggest("left")
    copy = pickle.loads(cloudpickle.dumps(searcher))
    last = {"loss": 0.5, "training_iteration": 1, "stop_reason": "completed", "done": True}
    copy.on_trial_complete("left", last)
    configs = run(copy, names(3, 3))
    assert len({config["rate"] for config in [*done, left, *configs]}) == 7
    assert [trial.state.name for trial in copy.study.trials] == ["COMPLETE"] * 7


def test_a_trial_that_a_saved_state_does_not_know_is_found_by_its_id(tmp_path):
    settings = {"storage": tmp_path / "study.journal", "study_name": "sweep"}
    first = make(**settings)
    first.save(tmp_path / "state.pkl")
    first.suggest("a")
    first.on_trial_result("a", {"loss": 0.5, "training_iteration": 1})
    second = make(**settings)
    second.restore(tmp_path / "state.pkl")
    last = {"loss": 0.25, "training_iteration": 2, "stop_reason": "pruned", "done": True}
    second.on_trial_complete("a", last)
    [trial] = second.study.trials
    assert (trial.state.name, trial.intermediate_values) == ("PRUNED", {1: 0.5, 2: 0.25})


def test_a_state_of_another_objective_is_refused(tmp_path):
    from tune_tf.searchers import OptunaSearcher

    make().save(tmp_path / "state.pkl")
    with pytest.raises(SweepConflictError, match=r"saved for min loss; .* for max acc"):
        OptunaSearcher(CONTINUOUS, Objective("acc", "max")).restore(tmp_path / "state.pkl")
