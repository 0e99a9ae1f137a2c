"""Each way of ending under each scheduler: Tune, the last result, MLflow and Optuna agree on it."""

import math

import pytest
from inline_actors import run_inline
from ray import tune
from ray.tune.schedulers import FIFOScheduler
from ray.tune.search import SearchGenerator

from tune_tf.objective import Objective
from tune_tf.outcome import Outcome
from tune_tf.record import Record, SweepHistory
from tune_tf.searchers import OptunaSearcher
from tune_tf.space import Choice, Float, SearchSpace
from tune_tf.trial_observer import TrialObserver

pytestmark = [pytest.mark.usefixtures("inline")]


LOSS = Objective("loss", "min")
SPACE = SearchSpace({"rate": Float(0.1, 1.0)})
LIMIT, LONG = 4, 8
SCRIPTS = ("good", "bad", "done", "raises", "nan", "flat", "worse", "better")
LEVELS = {"good": 2.0, "bad": 8.0, "worse": 9.0, "better": 1.0}


def trainable():
    class Scripted(tune.Trainable):
        def setup(self, config):
            self.config = config

        def step(self):
            script, iteration = self.config["script"], self.iteration + 1
            if script == "raises" and iteration == 2:
                raise RuntimeError("the user's code raised")
            loss = LEVELS.get(script, 4.0) + (0 if script == "flat" else 1 / iteration)
            done = iteration == 3 and script in ("done", "nan")
            return {"loss": math.nan if done and script == "nan" else loss, "done": done}

        def save_checkpoint(self, checkpoint_dir):
            return {"saved": True}

        def load_checkpoint(self, checkpoint):
            pass

        def reset_config(self, new_config):
            self.setup(new_config)
            return True

    return Scripted


def rays(name, **settings):
    from ray.tune import schedulers

    return getattr(schedulers, name)(metric="loss", mode="min", **settings)


def ours(name, **settings):
    from tune_tf.schedulers import scheduler

    return scheduler(name, LOSS, space=SPACE, epochs=LIMIT, **settings)


SCHEDULERS = {
    "fifo": FIFOScheduler,
    "asha": lambda: rays("ASHAScheduler", max_t=LIMIT, reduction_factor=2),
    "hyperband": lambda: rays("HyperBandScheduler", max_t=LIMIT, reduction_factor=2),
    "median": lambda: rays("MedianStoppingRule", grace_period=1, min_samples_required=2),
    "pbt": lambda: rays(
        "PopulationBasedTraining", perturbation_interval=2, hyperparam_mutations={"rate": [0.5]}
    ),
    "our asha": lambda: ours("asha", reduction_factor=2),
    "our hyperband": lambda: ours("HyperBandScheduler", reduction_factor=2),
    "our pbt": lambda: ours("pbt", perturbation_interval=2),
}


def stops():
    """Return what ``tune.run(stop=...)`` may be given, by name."""
    from ray.tune import stopper

    class Target(stopper.Stopper):  # the example of Ray's guide
        reached = False

        def __call__(self, trial_id, result):
            self.reached = self.reached or result["loss"] < 1.6
            return self.reached

        def stop_all(self):
            return self.reached

    class AllAfter(stopper.Stopper):
        results = 0

        def __call__(self, trial_id, result):
            self.results += 1
            return False

        def stop_all(self):
            return self.results >= 9

    def with_an_end(*stoppers):
        return stopper.CombinedStopper(*stoppers, stopper.MaximumIterationStopper(LONG))

    plateau = {"std": 1e-9, "num_results": 2, "grace_period": 2}
    return {
        "nothing": with_an_end(),
        "criteria": {"training_iteration": 3},
        "iterations": stopper.MaximumIterationStopper(3),
        "plateau": with_an_end(stopper.TrialPlateauStopper("loss", **plateau)),
        "function": with_an_end(stopper.FunctionStopper(lambda _, result: result["loss"] > 8.4)),
        "whole plateau": with_an_end(
            stopper.ExperimentPlateauStopper("loss", std=2.0, top=4, patience=1)
        ),
        "target": with_an_end(Target()),
        "all of them": with_an_end(AllAfter()),
    }


# Ray's HyperBand waits for ever for what leaves a bracket by itself (ray#6780).
LEAVES = ("raises", "nan", "done")
PAIRS = [
    ("fifo", "iterations"),
    ("fifo", "plateau"),
    ("fifo", "all of them"),
    ("asha", "nothing"),
    ("asha", "criteria"),
    ("asha", "target"),
    ("hyperband", "nothing"),
    ("hyperband", "criteria"),
    ("median", "function"),
    ("median", "whole plateau"),
    ("pbt", "nothing"),
    ("our asha", "nothing"),
    ("our asha", "plateau"),
    ("our hyperband", "all of them"),
    ("our pbt", "criteria"),
]


class Truth:
    """What ended each trial, as seen from both ends: by whom it was asked, and what was said."""

    def __init__(self, monkeypatch, scheduler, limit):
        from ray.tune.execution.tune_controller import TuneController

        self.limit = limit
        self.said, self.waited, self.stopped = {}, set(), set()
        decide, stop_trial = scheduler.on_trial_result, TuneController.stop_trial

        def on_trial_result(controller, trial, result):
            decision = self.said[trial.trial_id] = decide(controller, trial, result)
            return decision

        def stopping(controller, trial):
            self.stopped.add(trial.trial_id)
            if trial.status in ("PAUSED", "PENDING"):
                self.waited.add(trial.trial_id)
            stop_trial(controller, trial)

        monkeypatch.setattr(scheduler, "on_trial_result", on_trial_result)
        monkeypatch.setattr(TuneController, "stop_trial", stopping)

    def of(self, trial):
        iteration = trial.last_result.get("training_iteration", 0)
        by_scheduler = self.said.get(trial.trial_id) == "STOP" or trial.trial_id in self.waited
        if trial.status == "ERROR":
            return Outcome.ERROR
        if trial.trial_id not in self.stopped:
            return Outcome.OUT_OF_BUDGET
        if math.isnan(trial.last_result.get("loss", 0)):
            return Outcome.DIVERGED
        return Outcome.PRUNED if by_scheduler and iteration < self.limit else Outcome.COMPLETED


@pytest.mark.filterwarnings("ignore")  # Ray's calls of NumPy
@pytest.mark.parametrize(
    ("name", "stop", "tracked"),
    [
        *[(*pair, True) for pair in PAIRS],
        *[(*pair, False) for pair in PAIRS if "our" not in pair[0] and pair[0] != "pbt"],
    ],
)
def test_outcomes_match_what_stopped_each_trial(name, stop, tracked, tmp_path, monkeypatch):
    """With an observer; a searcher knows it without one too, where no trial leaves by itself."""
    scheduler, scripts = SCHEDULERS[name](), list(SCRIPTS)
    if name == "hyperband" or not tracked:
        scripts = [script for script in SCRIPTS if script not in LEAVES]
    limit = math.inf if name in ("fifo", "median", "pbt") else LIMIT
    truth = Truth(monkeypatch, scheduler, limit)
    searcher = searcher_of(scripts) if "pbt" not in name else None
    with Record(tmp_path) as record:
        endings = TrialObserver(record.begin_session(), LOSS)
        trials = run_inline(
            trainable(),
            tmp_path,
            scheduler=scheduler,
            callbacks=[endings] if tracked else [],
            stop=stops()[stop],
            **proposed_by(searcher, scripts),
        )
    expected = {trial.trial_id: truth.of(trial) for trial in trials}
    assert endings.outcomes == (expected if tracked else {})
    recorded = SweepHistory.read(tmp_path).trials
    assert {key: each.outcome for key, each in recorded.items()} == endings.outcomes
    if searcher is not None:  # Ray's PBT takes none
        told = {key: each for key, each in expected.items() if each is not Outcome.OUT_OF_BUDGET}
        assert in_optuna(searcher, told) == {key: each.optuna for key, each in told.items()}


def searcher_of(scripts):
    """Make a searcher that proposes the scripts in turn."""

    space = SearchSpace({"rate": Float(0.1, 1.0), "script": Choice(scripts)})
    points = [{"rate": (n + 1) / 10, "script": script} for n, script in enumerate(scripts)]
    return OptunaSearcher(space, LOSS, "random", seed=1, points_to_evaluate=points)


def proposed_by(searcher, scripts):
    """Return what makes a trial of each script, with a searcher or without."""
    if searcher is None:
        return {"config": {"script": tune.grid_search(scripts), "rate": 0.5}}
    return {"search_alg": SearchGenerator(searcher), "num_samples": len(scripts)}


def in_optuna(searcher, trial_ids):
    """Return Optuna's states of trials, by Tune's ids."""
    states = {t.user_attrs.get("tune_trial_id"): t.state.name for t in searcher.study.trials}
    return {trial_id: states[trial_id] for trial_id in trial_ids}
