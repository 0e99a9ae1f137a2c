"""What has to be true of a sweep that has come to its end, whatever happened on the way."""

import hashlib
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import optuna
from checks import check
from population_truths import assert_population
from trial_states import TrialStates, assert_consistent_states
from virtual_cluster import METRIC, kept_step, value_of
from virtual_store import Store, StoredRun

from tune_tf.outcome import CONFIG_CHANGED_AT, MLFLOW_RUN_ID, Outcome
from tune_tf.record import SweepHistory, recorded_results
from tune_tf.results import SweepResult
from tune_tf.schedulers.ordered_sweep import OrderedSweep
from tune_tf.searchers.trial_attrs import TUNE_TRIAL_ID
from tune_tf.space import flatten
from tune_tf.sweep.plan import make_searcher
from tune_tf.sweep.reproducibility import ordered_sweep_of
from tune_tf.sweep_folder import SweepFolder
from tune_tf.tracking.tags import STOP_REASON_TAG, SWEEP_ID_TAG, TRIAL_ID_TAG

if TYPE_CHECKING:
    from sweep_life import SimulatedSweep


def assert_truths(sweep: "SimulatedSweep", result: SweepResult) -> None:
    """Assert everything.

    Args:
        sweep: The sweep, which has come to its end.
        result: What it says that it has found.
    """
    folder = sweep.folder
    pages = SweepHistory.read(folder.path)
    tune = _tune(pages)
    study = make_searcher(folder, pages).study
    runs, parent = _runs(sweep.store, folder.sweep_id)
    ended_early = pages.sessions[-1].ended_early is not None
    told: dict[str, optuna.trial.FrozenTrial] = {}
    for trial in study.trials:
        trial_id = str(trial.user_attrs.get(TUNE_TRIAL_ID))
        check(trial_id not in told, f"{trial_id} is in Optuna twice")
        told[trial_id] = trial
    check(told.keys() == tune.keys(), f"Optuna has {sorted(told)}, Tune has {sorted(tune)}")
    check(runs.keys() <= tune.keys(), f"MLflow has {sorted(runs)}, Tune has {sorted(tune)}")
    check(pages.trials.keys() <= tune.keys(), f"the record has {sorted(pages.trials)}")
    _check_budget(sweep, tune, ended_early=ended_early)
    if sweep.config.scheduler.name == "pbt":
        assert_population(sweep, pages, runs)
        return
    _check_heard(sweep, pages)
    was_away = sweep.store.num_failures > 0
    standings, ends = {}, {}
    for trial_id, (status, _, last) in tune.items():
        if trial_id not in runs:
            never_began = told[trial_id].user_attrs.get("stop_reason") == "out_of_budget"
            never_began = never_began and "training_iteration" not in last
            check(never_began, f"{trial_id} has no run in MLflow")
            continue
        run, trial = runs[trial_id], told[trial_id]
        curve, ends[trial_id] = _check_history(sweep, result, tune, trial_id, run)
        standings[trial_id] = TrialStates(
            tune=status,
            optuna=trial.state.name,
            mlflow=run.status,
            reason=run.tags.get(STOP_REASON_TAG),
            optuna_reason=trial.user_attrs.get("stop_reason"),
            curve=curve,
            optuna_values=_shown(sweep, trial_id, trial, curve),
            changed_at=trial.user_attrs.get(CONFIG_CHANGED_AT),
        )
    stopped_at_once = {
        trial_id
        for trial_id, each in standings.items()
        if each.outcome is Outcome.OUT_OF_BUDGET and "training_iteration" not in tune[trial_id][2]
    }
    # Optuna has nothing to learn of trials that are stopped at once: they are FAIL there.
    others = standings.keys() - stopped_at_once
    assert_consistent_states({trial_id: standings[trial_id] for trial_id in sorted(others)})
    for trial_id in stopped_at_once:
        right = standings[trial_id].optuna in ("FAIL", "PRUNED")
        check(right, f"{trial_id}: {standings[trial_id]}")
    for each in result.trials:
        standing = standings.get(each.trial_id)
        if standing is not None:
            check(each.outcome is standing.outcome, f"{each} is told as another than {standing}")
        named = told[each.trial_id].user_attrs.get(MLFLOW_RUN_ID)
        wanted = runs[each.trial_id].run_id if standing is not None else None
        # A run may be made after the study's end, where the store was away until then.
        right = named == wanted or (named is None and was_away)
        check(right, f"Optuna names {named} as the run of {each.trial_id}, not {wanted}")
    _check_record(pages, standings, parent, was_away=was_away)
    if folder.config.reproducible:
        _check_decisions(advanced_sweep(folder, result), result)
    completed = {key for key, each in standings.items() if each.outcome is Outcome.COMPLETED}
    _check_best(result, {key: ends[key] for key in completed}, parent)
    if result.config.keep == "best":
        _check_kept(result, told, runs)


def _check_heard(sweep: "SimulatedSweep", pages: SweepHistory) -> None:
    """Check that the scheduler was told once of each result, in order, whatever was repeated.

    Tune does not tell it of a result by which others than the scheduler end the trial. Of a
    reproducible sweep it hears what follows from the results.
    """
    if sweep.config.reproducible:
        return
    for trial_id, trial in pages.trials.items():
        results = recorded_results(sweep.folder.path, trial.number)
        last = max((int(each["training_iteration"]) for each in results), default=0)
        heard = sweep.heard.iterations.get(trial_id, [])
        right = heard in ([*range(1, last + 1)], [*range(1, last)])
        check(right or trial.failures, f"the scheduler heard {heard} of {trial_id}, up to {last}")


def assert_same_study(sweep: "SimulatedSweep", live: optuna.Study) -> None:
    """Assert that a session's study is the one that the record gives."""
    replayed = make_searcher(sweep.folder, SweepHistory.read(sweep.folder.path)).study
    for trial, other in zip(live.trials, replayed.trials, strict=True):
        known, recorded = (_content_of(each) for each in (trial, other))
        if known["state"] == "RUNNING":  # Tune does not pass on the result at which one is stopped
            curve = recorded["curve"].items()
            recorded["curve"] = {step: it for step, it in curve if step in known["curve"]}
        check(known == recorded, f"the study knows {known}, and the record gives {recorded}")


def _content_of(trial: optuna.trial.FrozenTrial) -> dict[str, Any]:
    """Return what a trial holds but its times, and its run, which may be known later."""
    attrs = {name: each for name, each in trial.user_attrs.items() if name != MLFLOW_RUN_ID}
    if attrs.get(CONFIG_CHANGED_AT) == max(trial.intermediate_values, default=0):
        del attrs[CONFIG_CHANGED_AT]  # nothing is left out of the curve
    if trial.state is not optuna.trial.TrialState.COMPLETE:  # it may not have come so far again
        attrs = {name: each for name, each in attrs.items() if name not in ("epochs", "seconds")}
    return {
        "state": trial.state.name,
        "values": trial.values,
        "params": trial.params,
        "curve": trial.intermediate_values,
        "attrs": attrs,
        "constraints": trial.constraints,
    }


def digest_of(folder: Path, store: Store) -> str:
    """Return a digest of all that a sweep has left."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            digest.update(f"{path}".encode() + path.read_bytes())
    digest.update(repr(sorted(store.runs.items())).encode())
    return digest.hexdigest()


def _tune(history: SweepHistory) -> dict[str, tuple[str, dict[str, Any], dict[str, Any]]]:
    """Return status, config and last result of each trial by id."""
    return {
        key: ((trial.outcome or Outcome.INTERRUPTED).tune, dict(trial.config), dict(trial.last))
        for key, trial in history.trials.items()
    }


def _runs(store: Store, sweep_id: str) -> tuple[dict[str, StoredRun], StoredRun]:
    """Return the runs of the trials by id, and the sweep's own."""
    parents, children = [], {}
    for run in store.runs.values():
        if run.deleted:
            continue
        check(run.tags.get(SWEEP_ID_TAG) == sweep_id, f"a run of no sweep: {run}")
        check(len(run.inputs) == 1, f"{len(run.inputs)} data sets of {run}")
        trial_id = run.tags.get(TRIAL_ID_TAG)
        if trial_id is None:
            parents.append(run)
            continue
        check(trial_id not in children, f"{trial_id} is in MLflow twice")
        children[trial_id] = run
    check(len(parents) == 1, f"{len(parents)} parent runs")
    for run in children.values():
        known = run.tags.get("mlflow.parentRunId")
        check(known == parents[0].run_id, f"{run} is a child of {known}")
    return children, parents[0]


def _curve(run: StoredRun) -> dict[int, float]:
    history = run.history(METRIC)
    curve = {point.step: point.value for point in history}
    check(len(curve) == len(history), f"{run.run_id} has a step twice: {history}")
    return curve


def _check_budget(sweep: "SimulatedSweep", tune: dict[str, Any], *, ended_early: bool) -> None:
    wanted = sweep.config.budget.num_samples
    check(len(tune) <= wanted, f"{len(tune)} trials, and {wanted} were to be")
    check(ended_early or len(tune) == wanted, f"{len(tune)} trials of {wanted}, and no reason why")


def _check_history(
    sweep: "SimulatedSweep",
    result: SweepResult,
    tune: dict[str, tuple[str, dict[str, Any], dict[str, Any]]],
    trial_id: str,
    run: StoredRun,
) -> tuple[dict[int, float], float]:
    """Check a trial's values in MLflow.

    Returns:
        The curve of its first config, and the value that counts as its end; NaN if there is none.
    """
    _, config, last = tune[trial_id]
    curve = _curve(run)
    _check_curve(sweep, result, trial_id, config, last, curve)
    kept = kept_step if sweep.config.keep == "best" else int
    return curve, curve.get(kept(max(curve, default=0)), math.nan)


def _check_curve(
    sweep: "SimulatedSweep",
    result: SweepResult,
    trial_id: str,
    config: dict[str, Any],
    last: dict[str, Any],
    curve: dict[int, float],
) -> None:
    """Check that no point of a trial is lost, doubled or another's.

    A trial that went on from an earlier iteration and then ended keeps the points of before.
    """
    steps = sorted(curve)
    check(steps == list(range(1, len(steps) + 1)), f"{trial_id} has the steps {steps} in MLflow")
    iterations = int(last.get("training_iteration", 0))
    trained = {step for key, step, _ in sweep.faults.trained if key == trial_id}
    begun_again = len(steps) > iterations and Outcome.of_result(last) is not Outcome.COMPLETED
    check(set(steps) <= trained, f"{trial_id} has steps in MLflow that nobody trained: {steps}")
    right = len(steps) == iterations or begun_again
    check(right, f"{trial_id} has come to {iterations}, and MLflow has {len(steps)} steps")
    for step, value in curve.items():
        wanted = value_of(config, step)
        right = value == wanted or math.isnan(value)
        check(right, f"{trial_id}: {value} at {step} in MLflow, {wanted} was reported")
    number = next(each.number for each in result.trials if each.trial_id == trial_id)
    there = {report["training_iteration"] for report in recorded_results(sweep.folder.path, number)}
    right = there == set(steps) or (begun_again and set(range(1, iterations + 1)) <= there)
    check(right, f"{trial_id}: {sorted(there)} in the record, {steps} in MLflow")


def _shown(
    sweep: "SimulatedSweep",
    trial_id: str,
    trial: optuna.trial.FrozenTrial,
    curve: dict[int, float],
) -> dict[int, float]:
    """Return what Optuna was shown, without what a driver was killed after, before MLflow had it.

    Tune tells the searcher first, and the trial may not have come so far again.
    """
    trained = {(step, value) for key, step, value in sweep.faults.trained if key == trial_id}
    lost = trained - curve.items() if sweep.life.num_sessions > 1 else set()
    shown = trial.intermediate_values.items()
    return {step: value for step, value in shown if step in curve or (step, value) not in lost}


def _check_record(
    pages: SweepHistory, standings: dict[str, TrialStates], parent: StoredRun, *, was_away: bool
) -> None:
    right = pages.run_id == parent.run_id or (pages.run_id is None and was_away)
    check(right, f"the record has {pages.run_id} as the parent run")
    for trial_id, standing in standings.items():
        page = pages.trials.get(trial_id)
        check(page is not None, f"the record does not know {trial_id}")
        assert page is not None
        check(page.outcome is standing.outcome, f"the record has {page}, MLflow {standing}")
    last = pages.sessions[-1]
    check(
        last.ended_cleanly and not last.interrupted and not last.missing_outputs,
        f"the last session is {last}",
    )


def advanced_sweep(folder: SweepFolder, result: SweepResult) -> OrderedSweep:
    """Return the ordered sweep of a reproducible one, as it follows from settings and results."""
    ordered = ordered_sweep_of(folder)
    for trial in result.trials:
        if trial.outcome is Outcome.ERROR:
            ordered.report_failure(trial.number)
    ordered.advance()
    return ordered


def _check_decisions(ordered: OrderedSweep, result: SweepResult) -> None:
    """Check that exactly the trials exist that follow from the results, and ended as they do there.

    A trial that runs when the sweep ends has trained to the end of its turn.
    """
    count = len(ordered.trials)
    check(len(result.trials) == count, f"{len(result.trials)} trials, {count} follow")
    for trial in result.trials:
        config = ordered.config(trial.number)
        check(flatten(trial.config) == config, f"{trial} has not the config that follows: {config}")
        outcome, limit = ordered.outcome(trial.number)[0], ordered.limit(trial.number)
        check(trial.iterations <= limit, f"{trial} has passed {limit}")
        if outcome is None:
            check(ordered.is_over, f"{trial} has ended, and nothing follows")
        else:
            check(trial.outcome is outcome, f"{trial} has ended, and what follows is {outcome}")


def digest_of_decisions(sweep: "SimulatedSweep", result: SweepResult) -> str:
    """Return a digest of what has to be the same whatever happened on the way."""
    trials = [
        (each.number, each.config, str(each.outcome), each.iterations, each.metrics.get(METRIC))
        for each in result.trials
    ]
    best = result.best_if_any
    fingerprint = advanced_sweep(sweep.folder, result).digest
    text = repr((fingerprint, trials, best and best.number, result.ended_early))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _check_kept(
    result: SweepResult, told: dict[str, optuna.trial.FrozenTrial], runs: dict[str, StoredRun]
) -> None:
    """Check that a completed trial has the value of the epoch that it keeps in each system."""
    for trial in result.trials:
        if trial.outcome is not Outcome.COMPLETED:
            continue
        step = kept_step(trial.iterations)
        latest = {each.key: each.value for each in runs[trial.trial_id].as_run().data._metric_objs}
        found = {
            "value": trial.metrics[METRIC],
            "in Optuna": told[trial.trial_id].value,
            "in MLflow": latest[f"kept/{METRIC}"],
        }
        wanted = value_of(dict(trial.config), step)
        right = set(found.values()) == {wanted} and trial.kept_iteration == step
        check(right, f"{trial.trial_id} keeps {wanted} of iteration {step}, not {found}")


def _check_best(result: SweepResult, values: dict[str, float], parent: StoredRun) -> None:
    """Check the best trial by the values that the completed ones keep."""
    outcomes = [trial.outcome for trial in result.trials]
    finite = {key: value for key, value in values.items() if math.isfinite(value)}
    if finite:
        best = result.best_trial
        check(
            finite.get(best.trial_id) == max(finite.values()),
            f"{best.trial_id} is told as the best of {finite}",
        )
        told = parent.tags.get("tune_tf.best_trial_id")
        check(told == best.trial_id, f"MLflow tells {told} as the best, not {best.trial_id}")
    failed = {Outcome.DIVERGED, Outcome.OOM, Outcome.ERROR}
    wanted = "FAILED" if outcomes and failed.issuperset(outcomes) else "FINISHED"
    check(parent.status == wanted, f"the parent run is {parent.status}, not {wanted}")
    latest = {metric.key: metric.value for metric in parent.as_run().data._metric_objs}
    counts = {
        outcome.value: int(latest.get(f"trials/{outcome.value}", 0))
        for outcome in Outcome
        if latest.get(f"trials/{outcome.value}")
    }
    real: dict[str, int] = {}
    for trial in result.trials:
        if trial.outcome is not None:
            real[trial.outcome.value] = real.get(trial.outcome.value, 0) + 1
    check(counts == real, f"the parent counts {counts}, and there are {real}")
