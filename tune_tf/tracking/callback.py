"""The Ray Tune callback that writes a sweep to MLflow."""

import time
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from ray.tune.experiment import Trial

from tune_tf.constraint import Constraint, is_feasible
from tune_tf.errors import InvalidSettingsError
from tune_tf.objective import Objective
from tune_tf.outcome import MLFLOW_RUN_ID, STOP_CAUSE, Outcome, is_finite
from tune_tf.ranking import Candidate, best_of
from tune_tf.tracking import ending
from tune_tf.tracking.endings import Endings, last_report
from tune_tf.tracking.entry import (
    FEASIBLE_TAG,
    PARENT,
    STOP_CAUSE_TAG,
    STOP_REASON_TAG,
    TRIAL_NAME,
    Entry,
    Report,
)
from tune_tf.tracking.names import (
    MAX_TAG_LENGTH,
    cut,
    flat,
    is_number,
    key_of,
    metrics_of,
    params_of,
)
from tune_tf.tracking.runs import Sweep, SweepRuns, connect
from tune_tf.tracking.uri import check_tracking_uri
from tune_tf.tracking.writer import Writer

_CLOSE_TIMEOUT_S = 300.0
_NOTE = "mlflow.note.content"
_BEST_TRIAL = "tune_tf.best_trial_id"
_BEST_CHECKPOINT = "tune_tf.best_checkpoint"
_NOTHING: Mapping[str, str] = MappingProxyType({})


class MLflowCallback(Endings):
    """Writes a sweep to MLflow: a parent run, and a child run in the state of each trial.

    Works with any trainable, searcher and scheduler. Tune's loop only puts what is to be written
    in a queue; MLflow is loaded, and written to, by a thread that starts with the sweep and ends
    with it. A store that fails does not end the sweep.

    The reason why a trial stopped is read from its last result, and written there if it is
    missing, before the searcher is told: see :mod:`tune_tf.outcome`.

    Args:
        tracking_uri: Where MLflow keeps its runs.
        experiment_name: MLflow experiment of all runs; made if it does not exist.
        sweep_name: Name of the parent run; by default Tune's name of the experiment.
        objective: Tells the best trial, which the parent shows, and a trial that diverged.
        constraints: What a trial must keep to be the best one.
        sweep_id: Tag that holds the runs together; by default a new one. A sweep that is given the
            id of one in the store continues its runs.
        artifacts: Files of the parent run: name to text.
        tags: Tags of all runs.

    Raises:
        InvalidSettingsError: The tracking URI cannot work, or a name is empty.
    """

    def __init__(
        self,
        tracking_uri: str = "sqlite:///mlflow.db",
        experiment_name: str = "tune_tf",
        sweep_name: str | None = None,
        *,
        objective: Objective | None = None,
        constraints: Sequence[Constraint] = (),
        sweep_id: str | None = None,
        artifacts: Mapping[str, str] = _NOTHING,
        tags: Mapping[str, str] = _NOTHING,
    ) -> None:
        super().__init__(objective)
        check_tracking_uri(tracking_uri)
        if not experiment_name:
            raise InvalidSettingsError(["experiment_name must not be empty"])
        if sweep_id is not None and (not sweep_id or "'" in sweep_id):
            raise InvalidSettingsError([f"sweep_id must be text without quotes, not {sweep_id!r}"])
        self._sweep = Sweep(
            sweep_id or "",
            tracking_uri,
            experiment_name,
            dict(tags),
            marker=key_of(f"best/{objective.metric}") if objective else None,
            reopen=sweep_id is not None,
        )
        self._constraints = tuple(constraints)
        self._sweep_name = sweep_name
        self._given_id = sweep_id
        self._artifacts = dict(artifacts)
        self._writer: Writer | None = None
        self._runs: SweepRuns | None = None
        self._restored: Mapping[str, Any] = {}
        self._begin({})

    def _begin(self, state: Mapping[str, Any]) -> None:
        self._known: set[str] = set(state.get("run_ids", ())) | set(state.get("trial_ids", ()))
        self._run_ids: dict[str, str] = dict(state.get("run_ids", {}))
        self._parent_run_id: str | None = state.get("parent_run_id")
        super().set_state(state)
        self._num_results: int = state.get("num_results", 0)
        self._candidates: dict[str, Candidate[str]] = {
            key: Candidate(key, Outcome.of_tag(tag), value, feasible)
            for key, tag, value, feasible in state.get("candidates", ())
        }
        self._best = (
            best_of(self._candidates.values(), self._objective) if self._objective else None
        )
        self._configs: dict[str, Mapping[str, Any]] = {}
        self._named = self._sweep_name is not None

    # Where the runs are.

    @property
    def sweep_id(self) -> str | None:
        """Tag that holds the sweep's runs together; None until the sweep has started."""
        return self._sweep.sweep_id or None

    @property
    def parent_run_id(self) -> str | None:
        """MLflow's id of the parent run; None until it is made."""
        return self._ids().get(PARENT, self._parent_run_id)

    def run_ids(self) -> dict[str, str]:
        """Return trial id to MLflow's run id, for the runs made so far."""
        ids = {**self._run_ids, **self._ids()}
        ids.pop(PARENT, None)
        return ids

    def flush(self, timeout_s: float | None = None) -> bool:
        """Wait until all is written that was reported so far; return whether that came in time."""
        return self._writer is None or self._writer.flush(timeout_s)

    def _run_id(self, trial_id: str) -> str | None:
        """Return a run's id as far as it is known now; the writer may not have made it yet."""
        made = self._runs.run_id_of(trial_id) if self._runs is not None else None
        return made or self._run_ids.get(trial_id)

    def _ids(self) -> dict[str, str]:
        return self._runs.run_ids if self._runs is not None else {}

    # What Tune calls.

    def setup(self, *args: Any, **info: Any) -> None:
        """Start the writer and put the parent run."""
        state, self._restored = self._restored, {}
        self._begin(state)
        self._sweep = replace(
            self._sweep,
            sweep_id=state.get("sweep_id") or self._given_id or uuid.uuid4().hex,
            reopen=bool(state) or self._given_id is not None,
            trial_ids=frozenset(self._known) if state else None,
        )
        self._runs = None
        self._writer = Writer(self._open_runs)
        note = "A hyperparameter sweep with Ray Tune, still running. Each child run is one trial."
        self._put(
            PARENT,
            name=self._sweep_name,
            tags={_NOTE: note},
            texts=self._artifacts.copy(),
            reopen=True,
        )
        for entry in state.get("unwritten", ()):  # a killed driver had not written it yet
            self._writer.put(entry)

    def on_trial_result(
        self,
        iteration: int,
        trials: list[Trial],
        trial: Trial,
        result: dict[str, Any],
        **info: Any,
    ) -> None:
        """Queue the result's metrics; write the reason of a stop and the run's id into it."""
        super().on_trial_result(iteration, trials, trial, result, **info)
        if run_id := self._run_id(trial.trial_id):
            result[MLFLOW_RUN_ID] = run_id
        self._num_results += 1
        metrics = metrics_of(result)
        tags = self._changes(trial, metrics)
        step = int(result.get("training_iteration", 0))
        self._put(trial.trial_id, tags=tags, reports=[Report(step, _now_ms(), metrics)])

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """End all runs and wait until they are written."""
        if self._writer is None:
            return
        super().on_experiment_end([trial for trial in trials if trial.trial_id in self._known])
        self._end_sweep(trials, left=any(t.trial_id not in self.outcomes for t in trials))
        self._writer.close(_CLOSE_TIMEOUT_S)
        self._run_ids, self._parent_run_id = self.run_ids(), self.parent_run_id
        self._writer = self._runs = None

    def get_state(self) -> dict[str, Any] | None:
        """Return what a resumed sweep needs, as far as it is known now; never waits."""
        if not self._sweep.sweep_id:
            return None
        return {
            **(super().get_state() or {}),
            "sweep_id": self._sweep.sweep_id,
            "parent_run_id": self.parent_run_id,
            "run_ids": self.run_ids(),
            "trial_ids": sorted(self._known),
            "num_results": self._num_results,
            "unwritten": self._writer.unwritten() if self._writer is not None else [],
            "candidates": [
                (each.key, each.outcome.value, each.value, each.feasible)
                for each in self._candidates.values()
                if each.outcome is not None
            ],
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take up a sweep that was interrupted; Tune calls this before :meth:`setup`."""
        self._restored = state

    # One trial.

    def trial_opened(self, trial: Trial) -> None:
        """Open the trial's run."""
        self._configs[trial.trial_id] = trial.config
        if not self._named:
            self._named = True
            self._put(PARENT, name=trial.storage.experiment_dir_name)
        if trial.trial_id in self._known:
            self._put(trial.trial_id, reopen=True)
            return
        self._known.add(trial.trial_id)
        self._put(
            trial.trial_id,
            name=str(trial),
            params=params_of(trial.config),
            tags={TRIAL_NAME: str(trial)},
            reopen=True,
            fresh=not last_report(trial),
        )

    def _changes(self, trial: Trial, metrics: dict[str, float]) -> dict[str, str]:
        """Add hyperparameters that changed in mid-run to the metrics; return those not numbers."""
        before = self._configs.get(trial.trial_id)
        if before is None or trial.config is before:
            return {}
        self._configs[trial.trial_id] = trial.config
        old = dict(flat(before))
        tags = {}
        for name, value in flat(trial.config):
            if name in old and old[name] == value:
                continue
            if is_number(value):
                metrics[key_of(f"hp/{name}")] = float(value)
            else:
                tags[key_of(f"hp/{name}")] = cut(str(value), MAX_TAG_LENGTH)
        return tags

    def trial_ended(self, trial: Trial, outcome: Outcome, error: str | None) -> None:
        """End the trial's run, and show the best one so far on the parent."""
        self._configs.pop(trial.trial_id, None)
        reported = last_report(trial)
        last = {**reported, **metrics_of(reported)}
        cause = ending.cause_of(error) if error else last.get(STOP_CAUSE)
        tags = {STOP_REASON_TAG: outcome.value}
        if self._constraints:
            tags[FEASIBLE_TAG] = str(is_feasible(self._constraints, last)).lower()
        if cause:
            tags[STOP_CAUSE_TAG] = cut(str(cause), MAX_TAG_LENGTH)
        self._put(
            trial.trial_id,
            tags=tags,
            texts={"error.txt": ending.plain(error)} if error else {},
            status=outcome.mlflow,
            end_ms=_now_ms(),
        )
        self._compete(trial, outcome, last)

    # The sweep.

    def _compete(self, trial: Trial, outcome: Outcome, result: Mapping[str, Any]) -> None:
        if self._objective is None or outcome is Outcome.INTERRUPTED:
            return
        value = result.get(self._objective.metric)
        if not is_finite(value):
            return
        value = float(value)  # type: ignore[arg-type]
        feasible = is_feasible(self._constraints, result)
        self._candidates[trial.trial_id] = Candidate(trial.trial_id, outcome, value, feasible)
        best = best_of(self._candidates.values(), self._objective)
        if best is not None and best != self._best:
            self._best = best
            metrics = {key_of(f"best/{self._objective.metric}"): best.value}
            self._put(PARENT, reports=[Report(len(self._outcomes), _now_ms(), metrics)])

    def _end_sweep(self, trials: list[Trial], left: bool) -> None:
        now_ms = _now_ms()
        outcomes = [self.outcomes[t.trial_id] for t in trials if t.trial_id in self.outcomes]
        counts = Counter(outcome.value for outcome in outcomes)
        status = ending.of_sweep(outcomes, interrupted=left or not trials)
        params: dict[str, str] = {}
        tags: dict[str, str] = {}
        best = None
        if self._best is not None:
            best = next((t for t in trials if t.trial_id == self._best.key), None)
        if best is not None:
            tags[_BEST_TRIAL] = best.trial_id
            if best.checkpoint is not None:
                tags[_BEST_CHECKPOINT] = cut(best.checkpoint.path, MAX_TAG_LENGTH)
            if status != "KILLED":  # a resumed sweep may find a better one
                params = {key_of(f"best_{k}"): v for k, v in params_of(best.config).items()}
        shown = (
            [each.value for each in Outcome] if self._sweep.reopen else list(counts)
        )  # zero may be news
        metrics = {f"trials/{outcome}": float(counts[outcome]) for outcome in shown}
        reports = [Report(self._num_results, now_ms, metrics, once=False)] if metrics else []
        self._put(
            PARENT,
            params=params,
            tags={**tags, _NOTE: self._note(counts, status, best)},
            reports=reports,
            status=status,
            end_ms=now_ms,
            trials=frozenset(trial.trial_id for trial in trials),
        )

    def _note(self, counts: Mapping[str, int], status: str, best: Trial | None) -> str:
        words = {"FINISHED": "", "KILLED": ", interrupted", "FAILED": ", failed"}[status]
        each = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items())
        number = sum(counts.values())
        text = f"A hyperparameter sweep with Ray Tune{words}: {number} trial"
        text += "" if number == 1 else "s"
        text += f" ({each}), {self._num_results} results." if each else "."
        if self._best is not None and self._objective is not None:
            who = best or self._best.key
            text += f" Best {self._objective.metric} {self._best.value:.6g} in {who}."
        return text

    def _put(self, run: str, **what: Any) -> None:
        if self._writer is not None:
            self._writer.put(Entry(run, _now_ms(), **what))

    def _open_runs(self) -> SweepRuns:
        """Open the store; called in the writer's thread."""
        self._runs = SweepRuns(connect(self._sweep.tracking_uri), self._sweep)
        return self._runs


def _now_ms() -> int:
    return int(time.time() * 1000)
