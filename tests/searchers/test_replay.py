"""A study that is replayed from a record is the one that ran: live equals replayed."""

import math
import time

import numpy as np
import pytest
from searchers_by_hand import CONDITIONAL, CONTINUOUS

from tune_tf.objective import Objective
from tune_tf.outcome import Outcome
from tune_tf.record import recorded_form
from tune_tf.searchers import OptunaSearcher, ReplayedTrial
from tune_tf.space import Choice, Float, SearchSpace, flatten


def half(value):
    return value / 2


LOSS, SPEED = Objective("loss", "min"), Objective("speed", "max")
NUMBERS = SearchSpace({"rate": Float(1e-4, 1e-1, log=True), "momentum": Float(0, 1)})
OPTIONS = SearchSpace(
    {
        "shape": Choice([(1, 2), (3, 4)]),
        "rate": Choice([0.1, 0.01]),
        "n": Choice([np.int64(1), np.int64(2)]),
        "kind": Choice([int, half]),
        "group": Choice([{"a": (1,)}, {2: (2,)}]),
    }
)
SAMPLERS = {
    "tpe": (CONDITIONAL, {}),
    "random": (CONDITIONAL, {"sampler": "random"}),
    "cmaes": (NUMBERS, {"sampler": "cmaes"}),
    "gp": pytest.param(CONDITIONAL, {"sampler": "gp"}, marks=pytest.mark.slow),  # with its extra
    "nsga2": (CONDITIONAL, {"sampler": "nsga2", "sampler_arguments": {"population_size": 4}}),
    "grid": (OPTIONS, {"sampler": "grid"}),
    "tpe of options": (OPTIONS, {}),
    "quasi-random": (CONTINUOUS, {"sampler": "QMCSampler"}),
}


class Sweep:
    """A live searcher, and what the record of its sweep would hold."""

    def __init__(self, space, objective=LOSS, **settings):
        self.arguments = (space, objective)
        self.settings = {"seed": 7, **settings}
        self.searcher = OptunaSearcher(*self.arguments, **self.settings)
        self.trials = {}

    def run(self, outcome, cause=None, losses=(0.5, 0.25), **last):
        """Run a trial to an outcome; the searcher does not see the result at which it stops."""
        trial_id = f"t{len(self.trials)}"
        config = self.searcher.suggest(trial_id)
        note = self.searcher.note_of(trial_id)
        rate = flatten(config).get("rate", 0.1)
        results = [
            {
                "training_iteration": step,
                "loss": loss + rate,
                "speed": 2.0,
                "time_total_s": 1.5 * step,
            }
            for step, loss in enumerate(losses, 1)
        ]
        stops = outcome is not None and results and outcome is not Outcome.ERROR
        if stops:
            results[-1] |= {"stop_reason": outcome.value, **last}
            if cause:
                results[-1]["stop_cause"] = cause
        for result in results[: len(results) - bool(stops)]:
            self.searcher.on_trial_result(trial_id, result)
        if outcome is Outcome.ERROR:
            self.searcher.on_trial_complete(trial_id, error=True)
            cause = "the trial failed; see Tune's error file"
        elif outcome is not None:
            final = results[-1] | {"done": True} if results else None
            self.searcher.on_trial_complete(trial_id, final)
        self.trials[trial_id] = ReplayedTrial(
            trial_id,
            recorded_form(config),
            outcome,
            cause,
            recorded_form(results),
            note=recorded_form(note),
        )

    def replayed(self):
        """Return a new searcher that was told the record."""
        settings = self.settings.copy()
        if settings.pop("warm_start_from", None):
            settings["earlier"] = recorded_form(self.searcher.earlier)
        searcher = OptunaSearcher(*self.arguments, **settings)
        searcher.replay(list(self.trials.values()))
        return searcher


def known(searcher):
    """Return what a study and its trials know; times apart."""
    study = searcher.study
    return study._storage.get_study_system_attrs(study._study_id), [
        {
            "number": trial.number,
            "state": trial.state.name,
            "params": trial.params,
            "distributions": trial.distributions,
            "values": trial.values,
            "curve": trial.intermediate_values,
            "attrs": trial.user_attrs,
            "constraints": trial.constraints,
            "system": {k: v for k, v in trial.system_attrs.items() if "relative_params" not in k},
        }
        for trial in searcher.study.trials
    ]


def run_all(sweep):
    """Run trials to every outcome, in every way that a study tells apart."""
    sweep.run(Outcome.COMPLETED)
    sweep.run(Outcome.PRUNED, "chance to beat 0.5: 3%")
    sweep.run(Outcome.OUT_OF_BUDGET, losses=())
    sweep.run(Outcome.OUT_OF_BUDGET)
    sweep.run(Outcome.DIVERGED, losses=(0.5, math.nan))
    sweep.run(Outcome.COMPLETED, losses=(0.5, math.inf))
    sweep.run(Outcome.ERROR)
    sweep.run(
        Outcome.COMPLETED,
        losses=(0.5, 0.2, 0.3),
        **{"kept/loss": 0.2, "kept/training_iteration": 2},
    )
    sweep.run(Outcome.COMPLETED, losses=(0.5, 0.4, 0.3), config_changed_at=2)
    sweep.run(Outcome.COMPLETED, mlflow_run_id="r1")
    sweep.run(None)
    sweep.run(None, losses=())


@pytest.mark.parametrize(("space", "settings"), SAMPLERS.values(), ids=SAMPLERS)
def test_a_replayed_study_is_the_one_that_ran(space, settings):
    sweep = Sweep(space, **settings)
    run_all(sweep)
    assert known(sweep.replayed()) == known(sweep.searcher)


@pytest.mark.parametrize("sampler", ["tpe", "nsga2"])
def test_a_replayed_study_has_constraints_and_several_objectives(sampler):
    sweep = Sweep(CONDITIONAL, [LOSS, SPEED], sampler=sampler, constraints={"speed": ">= 3"})
    run_all(sweep)
    assert known(sweep.replayed()) == known(sweep.searcher)


@pytest.mark.parametrize("num_run", [0, 1, 2, 3])
def test_points_and_earlier_results_are_replayed_without_their_source(num_run, tmp_path):
    earlier = Sweep(CONDITIONAL, storage=tmp_path / "old.journal", study_name="old")
    run_all(earlier)
    points = [
        {"optimizer": "adam", "rate": 0.01},
        {"optimizer": "sgd", "rate": 0.02, "momentum": 0.5},
    ]
    sweep = Sweep(CONDITIONAL, points_to_evaluate=points, warm_start_from=tmp_path / "old.journal")
    assert len(sweep.searcher.earlier) == 6
    for _ in range(num_run):
        sweep.run(Outcome.COMPLETED)
    (tmp_path / "old.journal").unlink()
    assert known(sweep.replayed()) == known(sweep.searcher)


@pytest.mark.parametrize(("space", "settings"), SAMPLERS.values(), ids=SAMPLERS)
def test_two_resumes_propose_the_same_and_repeat_no_draw(space, settings):
    sweep = Sweep(space, **settings)
    for _ in range(9):
        sweep.run(Outcome.COMPLETED)
    first, second = sweep.replayed(), sweep.replayed()
    again = [[each.suggest(f"new{n}") for n in range(3)] for each in (first, second)]
    assert again[0] == again[1]
    if settings.get("sampler") == "nsga2":
        return  # a child may be like its parent
    drawn = [repr(trial.config) for trial in sweep.trials.values()]
    assert not {repr(recorded_form(each)) for each in again[0]} & set(drawn)


def test_a_trial_that_goes_on_is_told_later_as_if_nothing_had_been():
    sweep = Sweep(CONDITIONAL)
    sweep.run(None)
    later = sweep.replayed()
    for searcher in (sweep.searcher, later):
        searcher.on_trial_result("t0", {"training_iteration": 3, "loss": 0.1})
        last = {"training_iteration": 4, "loss": 0.05, "stop_reason": "completed", "done": True}
        searcher.on_trial_complete("t0", last)
    assert known(later) == known(sweep.searcher)


def test_five_thousand_trials_are_replayed_in_seconds():
    space = SearchSpace({f"p{n}": Float(0, 1) for n in range(6)} | {"c": Choice(["a", "b"])})
    config = {f"p{n}": 0.5 for n in range(6)} | {"c": "a"}
    results = [{"training_iteration": step, "loss": 1 / step} for step in range(1, 11)]
    trials = [ReplayedTrial(f"t{n}", config, Outcome.PRUNED, None, results) for n in range(5000)]
    searcher = OptunaSearcher(space, LOSS)
    begin = time.process_time()
    searcher.replay(trials)
    assert time.process_time() - begin < 5
    assert len(searcher.study.trials) == 5000
