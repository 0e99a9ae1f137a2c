"""A searcher that is saved, copied, killed and restored."""

import copy
import pickle

import pytest
from searchers_by_hand import CONDITIONAL, CONTINUOUS, make, names, run, trials_of

from tune_tf.errors import SweepConflictError
from tune_tf.objective import Objective
from tune_tf.outcome import Outcome


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


def test_what_is_saved_holds_no_storage_but_one_in_memory(storage, tmp_path):
    searcher = make(storage=storage)
    run(searcher, names(2))
    searcher.save(tmp_path / "state.pkl")
    saved = pickle.loads((tmp_path / "state.pkl").read_bytes())
    assert (saved["_storage"] is None) is (storage is not None)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_a_copy_goes_on_by_itself(duplicate):
    searcher = make()
    run(searcher, names(3))
    twin = duplicate(searcher)
    assert run(twin, names(3, 3)) == run(searcher, names(3, 3))
    assert len(trials_of(twin)) == 6


@pytest.mark.parametrize("study_name", [None, "sweep"])
def test_a_kill_after_the_last_save_loses_nothing_and_draws_nothing_twice(study_name, tmp_path):
    settings = {"storage": tmp_path / "study.journal", "study_name": study_name}
    first = make(**settings)
    begun = run(first, names(11))
    running = first.suggest("running")
    first.save(tmp_path / "state.pkl")
    lost = run(first, names(2, 11))  # finished, then forgotten by Tune
    lost.append(first.suggest("t13"))
    first.on_trial_result("t13", {"loss": 1.0, "training_iteration": 1})
    first.on_trial_complete("running", {"loss": 1.0, "training_iteration": 1, "done": True})
    del first  # kill -9

    second = make(**settings)
    second.restore(tmp_path / "state.pkl")
    # Tune knows "running" as unfinished and runs it again: its end is in the study already.
    second.on_trial_result("running", {"loss": 9.0, "training_iteration": 1})
    second.on_trial_complete("running", {"loss": 9.0, "training_iteration": 2, "done": True})
    assert run(second, names(3, 50)) == lost
    new = run(second, names(4, 60))
    configs = [*begun, running, *lost, *new]
    assert len({config["rate"] for config in configs}) == len(configs)
    assert [trial.params["rate"] for trial in trials_of(second)] == [c["rate"] for c in configs]
    assert {trial.state.name for trial in trials_of(second)} <= {"COMPLETE", "PRUNED"}


def test_random_configs_after_a_kill_equal_those_of_an_undisturbed_sweep(tmp_path):
    undisturbed = run(make(CONDITIONAL, sampler="random"), names(12))
    settings = {"sampler": "random", "storage": tmp_path / "s.journal", "study_name": "s"}

    first = make(CONDITIONAL, **settings)
    configs = run(first, names(4))
    first.save(tmp_path / "state.pkl")
    run(first, names(3, start=4))  # asked for after the save, and forgotten by Tune
    second = make(CONDITIONAL, **settings)
    second.restore(tmp_path / "state.pkl")
    assert [*configs, *run(second, names(8, start=4))] == undisturbed


def test_two_resumes_from_one_point_propose_the_same(tmp_path):
    settings = {"storage": tmp_path / "study.journal", "study_name": "sweep"}
    run(make(**settings), names(3))
    (tmp_path / "copy.journal").write_bytes((tmp_path / "study.journal").read_bytes())
    twin = settings | {"storage": tmp_path / "copy.journal"}
    assert run(make(**settings), names(3)) == run(make(**twin), names(3))


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


def test_a_new_outcome_of_a_rerun_trial_is_recorded_in_the_study(tmp_path):
    from tune_tf.searchers.trial_attrs import RELINKED

    searcher = make(storage=tmp_path / "study.journal")
    searcher.suggest("a")
    searcher.save(str(tmp_path / "saved"))
    searcher.on_trial_complete("a", error=True)
    resumed = make(storage=tmp_path / "study.journal")
    resumed.restore(str(tmp_path / "saved"))
    resumed.finish({"a": Outcome.ERROR})
    assert RELINKED not in resumed._reconcile().study.user_attrs

    result = {"loss": 0.5, "training_iteration": 1, "done": True}
    resumed.on_trial_result("a", result)
    resumed.on_trial_complete("a", result)
    resumed.finish({"a": Outcome.COMPLETED})
    (trial,) = trials_of(resumed)
    assert (trial.state.name, trial.user_attrs["stop_reason"]) == ("FAIL", "error")
    assert resumed._reconcile().study.user_attrs[RELINKED] == {"0": "a"}
