"""A searcher that is saved, copied, killed and restored."""

import pytest
from searchers_by_hand import CONDITIONAL, CONTINUOUS, make, names, run, trials_of

from tune_tf.errors import SweepConflictError
from tune_tf.objective import Objective


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
    first = make(**settings)
    done = run(first, names(3))
    left = first.suggest("left")
    second = make(**settings)
    configs = run(second, names(4))
    assert configs[0] == left
    assert len({config["rate"] for config in [*done, *configs]}) == 7
    assert [trial.state.name for trial in trials_of(second)].count("RUNNING") == 0


def test_a_state_of_another_objective_is_refused(tmp_path):
    from tune_tf.searchers import OptunaSearcher

    make().save(tmp_path / "state.pkl")
    with pytest.raises(SweepConflictError, match=r"saved for min loss; .* for max acc"):
        OptunaSearcher(CONTINUOUS, Objective("acc", "max")).restore(tmp_path / "state.pkl")
