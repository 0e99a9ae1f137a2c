"""The searcher driven by hand with Tune's calls."""

import copy
import math
import pickle

import optuna
import pytest

from tune_tf.errors import InvalidSettingsError, SweepConflictError
from tune_tf.objective import Objective
from tune_tf.outcome import Outcome
from tune_tf.space import Choice, Float, Int, SearchSpace, flatten

LOSS = Objective("loss", "min")
CONTINUOUS = SearchSpace({"rate": Float(1e-4, 1e-1, log=True), "layer": {"units": Int(4, 64)}})
CONDITIONAL = SearchSpace(
    {
        "optimizer": Choice(["adam", "sgd"]),
        "momentum": Float(0, 0.99, when={"optimizer": "sgd"}),
        "rate": Float(1e-4, 1e-1, log=True),
        "batch": 32,
    }
)


def make(space=CONTINUOUS, **settings):
    from tune_tf.searchers import OptunaSearcher

    return OptunaSearcher(space, LOSS, **{"seed": 7, **settings})


def loss_of(config):
    return math.log10(config["rate"]) ** 2 + config.get("momentum", 0.5)


def run(searcher, trial_ids):
    """Run trials one after the other, each to its end; return their configs."""
    configs = []
    for trial_id in trial_ids:
        config = searcher.suggest(trial_id)
        result = {"loss": loss_of(config), "training_iteration": 1}
        searcher.on_trial_result(trial_id, result)
        searcher.on_trial_complete(trial_id, result | {"done": True})
        configs.append(config)
    return configs


def trials_of(searcher):
    return searcher._reconcile().study.trials


def names(count, start=0):
    return [f"t{i}" for i in range(start, start + count)]


@pytest.mark.parametrize("where", ["memory", "journal"])
@pytest.mark.parametrize(
    ("space", "settings"),
    [(CONTINUOUS, {}), (CONDITIONAL, {"multivariate": False})],
    ids=["unconditional", "conditional"],
)
def test_one_trial_at_a_time_is_proposed_what_plain_optuna_proposes(
    space, settings, where, tmp_path
):
    storage = None if where == "memory" else tmp_path / "study.journal"
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=7, **settings))
    suggest, plain = space.to_optuna(), []
    for _ in range(30):
        trial = study.ask()
        plain.append(suggest(trial))
        study.tell(trial, loss_of(plain[-1]))
    ours = run(make(space, storage=storage), names(30))
    assert [flatten(config) for config in ours] == plain


def test_groups_of_a_space_are_nested_in_the_config():
    assert set(make().suggest("a")["layer"]) == {"units"}


@pytest.mark.parametrize("space", [CONTINUOUS, CONTINUOUS.to_optuna(), CONTINUOUS.distributions()])
def test_a_space_can_be_given_in_three_forms(space):
    sampler = optuna.samplers.TPESampler(seed=1)
    given = make(space, sampler=sampler, seed=None).suggest("a")
    assert given == make(sampler="tpe", seed=1).suggest("a")


def test_distributions_can_be_nested_as_under_rays_own_searcher():
    from ray.tune.search.optuna import OptunaSearch

    rate = optuna.distributions.FloatDistribution(0, 1)
    kinds = {"units": optuna.distributions.IntDistribution(4, 64), "layer": {"rate": rate}}
    sampler = optuna.samplers.RandomSampler
    theirs = OptunaSearch(kinds, metric="loss", mode="min", sampler=sampler(seed=3))
    ours = make(kinds, sampler=sampler(seed=3), seed=None)
    assert [ours.suggest(name) for name in "abc"] == [theirs.suggest(name) for name in "abc"]


def test_what_rays_own_searcher_has_and_this_one_has_not_is_known():
    import inspect

    from ray.tune.search import Searcher
    from ray.tune.search.optuna import OptunaSearch

    from tune_tf.searchers import OptunaSearcher
    from tune_tf.searchers.study_searcher import StudySearcher

    def public(*kinds):
        return {name for kind in kinds for name in vars(kind) if not name.startswith("_")}

    def arguments(kind):
        return set(inspect.signature(kind).parameters)

    assert public(OptunaSearch) - public(OptunaSearcher, StudySearcher) == {"convert_search_space"}
    assert arguments(OptunaSearch) - arguments(OptunaSearcher) == {"metric", "mode"}
    left = public(Searcher) - public(OptunaSearcher, StudySearcher) - {"FINISHED", "CKPT_FILE_TMPL"}
    inherited = {"metric", "mode", "save_to_dir", "restore_from_dir", "add_evaluated_trials"}
    assert left == inherited | {"get_state", "set_state"}  # Ray's has these two neither
    for name in public(OptunaSearch) & public(OptunaSearcher, StudySearcher):
        theirs = inspect.signature(getattr(OptunaSearch, name)).parameters.values()
        ours = inspect.signature(getattr(OptunaSearcher, name)).parameters.values()
        assert [(each.name, each.kind, each.default) for each in ours] == [
            (each.name, each.kind, each.default) for each in theirs
        ], name


def test_the_metric_and_mode_are_the_objectives():
    assert (make().metric, make().mode) == ("loss", "min")


def test_what_tune_was_given_is_accepted_where_it_agrees():
    assert make().set_search_properties("loss", "min", {"batch": 32}, stop={})
    assert make().set_search_properties(None, None, {})


def test_another_metric_given_to_tune_is_refused():
    with pytest.raises(InvalidSettingsError, match=r"mode='max'.* created for metric='loss'"):
        make().set_search_properties("loss", "max", {})


def test_a_config_with_values_to_search_is_not_accepted():
    from ray import tune

    assert not make().set_search_properties(None, None, {"x": tune.uniform(0, 1)})
    assert not make().set_search_properties(None, None, {"x": tune.grid_search([0, 1])})


@pytest.mark.parametrize(
    ("last", "state"),
    [({"training_iteration": 3}, "COMPLETE"), ({"training_iteration": 2}, "PRUNED")],
)
def test_the_limit_that_tune_told_separates_complete_from_pruned(last, state):
    searcher = make()
    searcher.set_search_properties(None, None, {}, stop={"training_iteration": 3})
    searcher.suggest("a")
    searcher.on_trial_result("a", {"loss": 1.0, "training_iteration": 1})
    searcher.on_trial_complete("a", {"loss": 0.5, "done": True, **last})
    [trial] = trials_of(searcher)
    assert trial.state.name == state
    assert trial.value == 0.5


@pytest.mark.parametrize("value", [math.nan, math.inf, None, "text"])
def test_a_metric_that_is_not_finite_never_leaves_a_trial_running(value):
    searcher = make()
    searcher.suggest("a")
    searcher.on_trial_result("a", {"loss": 1.0, "training_iteration": 1})
    searcher.on_trial_result("a", {"loss": value, "training_iteration": 2})
    searcher.on_trial_complete("a", {"loss": value, "training_iteration": 3, "done": True})
    [trial] = trials_of(searcher)
    assert trial.state.name == "FAIL"
    assert trial.intermediate_values == {1: 1.0}
    assert trial.user_attrs["stop_reason"] == "diverged"
    assert trial.user_attrs["stop_cause"] == f"loss is {value} at iteration 3"


def test_a_trial_that_failed_is_fail_with_a_cause():
    searcher = make()
    searcher.suggest("a")
    searcher.on_trial_complete("a", error=True)
    [trial] = trials_of(searcher)
    assert trial.state.name == "FAIL"
    assert trial.user_attrs["stop_reason"] == "error"
    assert "error file" in trial.user_attrs["stop_cause"]


def test_a_retried_trial_that_a_scheduler_stops_is_pruned():
    searcher = make()
    searcher.suggest("a")
    for step in (1, 2, 3, 4, 1):  # died after 4, began again
        searcher.on_trial_result("a", {"loss": 1.0, "training_iteration": step})
    searcher.on_trial_complete("a", {"loss": 2.0, "training_iteration": 2, "done": True})
    assert trials_of(searcher)[0].state.name == "PRUNED"


def test_finish_tells_what_became_of_trials_that_tune_dropped():
    searcher = make()
    ends = {
        "a": Outcome.OUT_OF_BUDGET,
        "b": Outcome.OUT_OF_BUDGET,
        "c": Outcome.COMPLETED,
        "d": Outcome.ERROR,
        "e": Outcome.INTERRUPTED,
        "stranger": Outcome.COMPLETED,
    }
    for trial_id in "abcde":
        searcher.suggest(trial_id)
    for trial_id in "ac":
        searcher.on_trial_result(trial_id, {"loss": 1.0, "training_iteration": 1})
    searcher.finish(ends)
    states = [trial.state.name for trial in trials_of(searcher)]
    assert states == ["PRUNED", "FAIL", "COMPLETE", "FAIL", "RUNNING"]


def test_a_study_of_another_direction_is_refused(tmp_path):
    from tune_tf.searchers import OptunaSearcher

    make(storage=tmp_path / "s.journal", study_name="s")
    with pytest.raises(SweepConflictError, match="directions minimize"):
        OptunaSearcher(
            CONTINUOUS, Objective("acc", "max"), storage=tmp_path / "s.journal", study_name="s"
        )


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


def test_random_configs_are_those_of_an_undisturbed_sweep_whatever_was_drawn_before_a_kill(
    tmp_path,
):
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


def test_trials_that_the_study_has_lost_are_there_again_and_told(tmp_path, caplog):
    searcher = make(storage=tmp_path / "one.journal", study_name="s")
    run(searcher, names(2))
    searcher.save(tmp_path / "state.pkl")
    other = make(storage=tmp_path / "two.journal", study_name="s")
    other.restore(tmp_path / "state.pkl")

    assert other.suggest("new")
    assert "study s had lost its last 2 trials" in caplog.text
    causes = [trial.user_attrs.get("stop_cause") for trial in other.study.trials]
    assert causes == ["the storage lost its end", "the storage lost its end", None]


def test_a_concurrency_limiter_passes_everything_on():
    from ray.tune.search import ConcurrencyLimiter

    searcher = make()
    limiter = ConcurrencyLimiter(searcher, max_concurrent=2)
    assert [limiter.suggest(name) is None for name in "abc"] == [False, False, True]
    limiter.on_trial_complete("a", {"loss": 1.0, "training_iteration": 1, "stop_reason": "pruned"})
    assert limiter.suggest("c")
    assert [trial.state.name for trial in trials_of(searcher)] == ["PRUNED", "RUNNING", "RUNNING"]


def test_a_database_that_is_locked_in_mid_sweep_is_named_and_then_gone_on_with(tmp_path):
    import sqlite3

    path = tmp_path / "optuna.db"
    searcher = make(storage=f"sqlite:///{path}?timeout=0.01", study_name="s")
    searcher.suggest("a")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(SweepConflictError, match=r"optuna\.db.*database is locked by another"):
        searcher.on_trial_result("a", {"loss": 1.0, "training_iteration": 1})
    other.close()
    searcher.on_trial_complete("a", {"loss": 0.5, "training_iteration": 2, "done": True})
    assert trials_of(searcher)[0].state.is_finished()


def test_a_full_disk_under_a_journal_stays_what_it_is(tmp_path, monkeypatch):
    import errno

    from tune_tf.searchers.storage.journal import JournalFile

    searcher = make(storage=tmp_path / "study.journal", study_name="s")
    searcher.suggest("a")

    def full(self, logs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(JournalFile, "append_logs", full)
    with pytest.raises(OSError, match="No space left"):
        searcher.on_trial_result("a", {"loss": 1.0, "training_iteration": 1})


def test_a_grid_is_finished_when_all_of_it_was_proposed():
    from ray.tune.search import Searcher

    space = SearchSpace({"units": Int(1, 3)})
    searcher = make(space, sampler="grid", seed=None)
    proposed = {searcher.suggest(name)["units"] for name in "abc"}
    assert proposed == {1, 2, 3}
    assert searcher.suggest("d") == Searcher.FINISHED
    searcher.on_trial_complete("a", {"loss": 0.5, "training_iteration": 1, "done": True})
    assert searcher.suggest("e") == Searcher.FINISHED


def test_another_end_of_a_trial_that_ran_again_after_a_kill_is_noted_with_the_study(tmp_path):
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
