"""The searcher driven by hand with Tune's calls: proposals, settings and storage."""

import optuna
import pytest
from searchers_by_hand import CONDITIONAL, CONTINUOUS, loss_of, make, names, run

from tune_tf.errors import InvalidSettingsError, SweepConflictError
from tune_tf.space import Choice, Float, Int, SearchSpace, flatten
from tune_tf.space.optuna_form import OptunaSpace


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
    suggest, plain = OptunaSpace(space), []
    for _ in range(30):
        trial = study.ask()
        plain.append(suggest(trial))
        study.tell(trial, loss_of(plain[-1]))
    ours = run(make(space, storage=storage), names(30))
    assert [flatten(config) for config in ours] == plain


@pytest.mark.parametrize("space", [["rate"], CONTINUOUS.distributions()])
def test_what_is_no_space_is_refused(space):
    with pytest.raises(InvalidSettingsError, match=r"space must be a SearchSpace, not .*from_ray"):
        make(space)


def test_a_trial_that_is_added_to_the_study_is_learnt_from_and_not_run():
    space = SearchSpace({"rate": Float(0, 1)})
    searcher = make(space, sampler="tpe")
    for step in range(40):
        rate, distributions = step / 39, space.distributions()
        searcher.study.add_trial(
            optuna.create_trial(
                value=abs(rate - 0.8), params={"rate": rate}, distributions=distributions
            )
        )
    drawn = [searcher.suggest(name)["rate"] for name in names(6)]
    assert all(0.6 < rate <= 1 for rate in drawn)


def test_public_api_differs_from_rays_searcher_only_as_listed():
    import inspect

    from ray.tune.search import Searcher
    from ray.tune.search.optuna import OptunaSearch

    from tune_tf.searchers import OptunaSearcher

    def public(*kinds):
        return {name for kind in kinds for name in vars(kind) if not name.startswith("_")}

    def arguments(kind):
        return set(inspect.signature(kind).parameters)

    assert public(OptunaSearch) - public(OptunaSearcher) == {
        "convert_search_space",
        "add_evaluated_point",
    }
    left = arguments(OptunaSearch) - arguments(OptunaSearcher)
    assert left == {"metric", "mode", "evaluated_rewards"}
    left = public(Searcher) - public(OptunaSearcher) - {"FINISHED", "CKPT_FILE_TMPL"}
    evaluated = {"add_evaluated_point", "add_evaluated_trials"}
    inherited = {"metric", "mode", "save_to_dir", "restore_from_dir"} | evaluated
    assert left == inherited | {"get_state", "set_state"}  # Ray's has these two neither
    for name in public(OptunaSearch) & public(OptunaSearcher):
        theirs = inspect.signature(getattr(OptunaSearch, name)).parameters.values()
        ours = inspect.signature(getattr(OptunaSearcher, name)).parameters.values()
        assert [(each.name, each.kind, each.default) for each in ours] == [
            (each.name, each.kind, each.default) for each in theirs
        ], name


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


def test_a_locked_database_is_named_and_used_again_once_unlocked(tmp_path):
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
    assert searcher.study.trials[0].state.is_finished()


def test_a_grid_is_finished_when_all_of_it_was_proposed():
    from ray.tune.search import Searcher

    space = SearchSpace({"units": Int(1, 3)})
    searcher = make(space, sampler="grid", seed=None)
    proposed = {searcher.suggest(name)["units"] for name in "abc"}
    assert proposed == {1, 2, 3}
    assert searcher.suggest("d") == Searcher.FINISHED
    searcher.on_trial_complete("a", {"loss": 0.5, "training_iteration": 1, "done": True})
    assert searcher.suggest("e") == Searcher.FINISHED


def test_a_trial_whose_end_somebody_else_told_keeps_it():
    searcher = make()
    searcher.suggest("a")
    searcher.study.tell(0, state=optuna.trial.TrialState.FAIL)
    searcher.on_trial_result("a", {"loss": 1.0, "training_iteration": 1})
    last = {"loss": 0.5, "training_iteration": 2, "stop_reason": "completed", "done": True}
    searcher.on_trial_complete("a", last)
    assert searcher.study.trials[0].state.name == "FAIL"


def test_options_that_differ_from_those_of_a_study_are_refused_and_leave_no_running_trial(tmp_path):
    settings = {"storage": tmp_path / "study.journal", "study_name": "s", "sampler": "random"}
    make(SearchSpace({"x": Choice([1, 2])}), **settings).suggest("a")
    searcher = make(SearchSpace({"x": Choice([1, 3])}), **settings)
    with pytest.raises(ValueError, match="does not support dynamic value space"):
        searcher.suggest("b")
    trial = searcher.study.trials[1]
    assert (trial.state.name, trial.user_attrs["stop_reason"]) == ("FAIL", "error")
