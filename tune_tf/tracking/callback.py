"""The Ray Tune callback that writes a sweep to MLflow."""

import threading
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.result import NODE_IP, TRAINING_ITERATION

from tune_tf.constraint import Constraint
from tune_tf.objective import Objective
from tune_tf.outcome import MLFLOW_RUN_ID, STOP_CAUSE, Outcome
from tune_tf.secrets import all_masked
from tune_tf.tracking import descriptions, environment, run_outcome
from tune_tf.tracking.lineage import LINEAGE_FILE, Lineage
from tune_tf.tracking.names import (
    ENDED,
    MAX_TAG_LENGTH,
    cut,
    long_params_of,
    mlflow_metrics,
    mlflow_params,
)
from tune_tf.tracking.outcome_tracker import OutcomeTracker, own_report
from tune_tf.tracking.parent_run import ParentRun
from tune_tf.tracking.process_settings import process_experiment_name, process_tracking_uri
from tune_tf.tracking.progress_summary import ProgressSummary
from tune_tf.tracking.provenance import Repository
from tune_tf.tracking.run_writer import RunWriter, check_names, now_ms
from tune_tf.tracking.runs import Sweep
from tune_tf.tracking.tags import NODE, RUNG, SweepDetails, node_of
from tune_tf.tracking.uri import check_tracking_uri
from tune_tf.tracking.writing.run_update import (
    FEASIBLE_TAG,
    PARENT,
    STOP_CAUSE_TAG,
    STOP_REASON_TAG,
    Report,
)

_GATHER_TIMEOUT_S = 30.0
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class MLflowCallback(OutcomeTracker):
    """Writes a sweep to MLflow: a parent run, and a child run in the state of each trial.

    Works with any trainable, searcher and scheduler. Tune's loop only puts what is to be written
    in a queue; MLflow is loaded, and written to, by a thread that starts with the sweep and ends
    with it. A store that fails does not end the sweep.

    The reason why a trial stopped is read from its last result, and written there if it is
    missing, before the searcher is told: see :mod:`tune_tf.outcome`. Secrets are masked in all that
    is written: see :mod:`tune_tf.secrets`.

    Args:
        tracking_uri: Where MLflow keeps its runs. By default where its own calls would: what
            ``mlflow.set_tracking_uri`` or ``MLFLOW_TRACKING_URI`` says, else
            ``sqlite:///mlflow.db``.
        experiment_name: MLflow experiment of all runs; made if it does not exist. By default the
            one that ``mlflow.set_experiment``, ``MLFLOW_EXPERIMENT_NAME`` or
            ``MLFLOW_EXPERIMENT_ID`` says, else ``tune_tf``.
        sweep_name: Name of the parent run; by default Tune's name of the experiment.
        objective: Tells the best trial, which the parent shows, and a trial that diverged.
        constraints: What a trial must keep to be the best one.
        sweep_id: Tag that holds the runs together; by default a new one. A sweep that is given the
            id of one in the store continues its runs.
        artifacts: Files of the parent run: name to text.
        tags: Tags of all runs.
        spool_path: Folder that keeps what is not written yet, so that a killed driver or a store
            that is down loses nothing; None to keep it in memory. With one, no searcher waits for
            the id of a run.
        details: What the sweep knows of itself and its trials.

    Raises:
        InvalidSettingsError: The tracking URI cannot work, a name is not one, or the experiment
            that the environment says is not to be had.
    """

    def __init__(
        self,
        tracking_uri: str | None = None,
        experiment_name: str | None = None,
        sweep_name: str | None = None,
        *,
        objective: Objective | None = None,
        constraints: Sequence[Constraint] = (),
        sweep_id: str | None = None,
        artifacts: Mapping[str, str] = _NOTHING,
        tags: Mapping[str, str] = _NOTHING,
        spool_path: str | Path | None = None,
        details: SweepDetails | None = None,
    ) -> None:
        super().__init__(objective)
        if tracking_uri is None:
            tracking_uri = process_tracking_uri()
        check_tracking_uri(tracking_uri)
        if experiment_name is None:
            experiment_name = process_experiment_name(tracking_uri)
        check_names(experiment_name, sweep_id)
        sweep = Sweep(
            sweep_id or "",
            tracking_uri,
            experiment_name,
            all_masked(tags),
            marker=ENDED,
            reopen=sweep_id is not None,
        )
        self._outbox = RunWriter(sweep, None if spool_path is None else Path(spool_path))
        self._constraints = tuple(constraints)
        self._sweep_name = sweep_name
        self._given_id = sweep_id
        self._artifacts = dict(artifacts)
        self._details = details or SweepDetails()
        self._gathering: threading.Thread | None = None
        self._restored: Mapping[str, Any] = {}
        self._begin({})

    def _begin(self, state: Mapping[str, Any]) -> None:
        self._known: set[str] = set(state.get("trial_ids", ()))
        super().set_state(state)
        self._resumed = bool(state)
        self._num_results: int = state.get("num_results", 0)
        self._standing = ProgressSummary(
            self._objective, self._constraints, state.get("standing", {})
        )
        self._page = ParentRun(self._standing, self._details, self._objective)
        self._lineage = Lineage(state.get("lineage", {}))
        self._environment: str | None = state.get("environment")
        self._source: dict[str, str] = {}
        self._sourced: set[str] = set()
        self._nodes: dict[str, str | None] = {}
        self._named = self._sweep_name is not None

    # Where the runs are.

    @property
    def sweep_id(self) -> str | None:
        """Tag that holds the sweep's runs together; None until the sweep has started."""
        return self._outbox.sweep.sweep_id or None

    @property
    def parent_run_id(self) -> str | None:
        """MLflow's id of the parent run; None until it is made."""
        return self._outbox.run_id_of(PARENT)

    def run_ids(self) -> dict[str, str]:
        """Return trial id to MLflow's run id, for the runs made so far."""
        return {run: run_id for run, run_id in self._outbox.run_ids.items() if run != PARENT}

    def await_run_id(self, trial: Trial) -> str | None:
        """Return the id of the run of a trial that is about to end, once it is made.

        A searcher asks for it, which can add nothing to a trial that has ended. None where the
        store is away.
        """
        if not trial.is_finished():
            self._track(trial)
        return self._outbox.await_run_id(trial.trial_id)

    def flush(self, timeout_s: float | None = None) -> bool:
        """Wait until all is written that was reported so far; return whether that came in time."""
        return self._outbox.flush(timeout_s)

    def attach(
        self,
        files: Mapping[str, Path],
        tags: Mapping[str, str] = _NOTHING,
        metrics: Mapping[str, float] = _NOTHING,
    ) -> None:
        """Add to the parent run of a sweep that has ended; its state stays as it is.

        A store that is down is a warning, and with a spool nothing is lost.

        Args:
            files: Artifact path to the local file, which has to stay where it is.
            tags: More tags.
            metrics: More metrics, at the step of the number of trials that have ended.
        """
        if self.sweep_id is None:
            return
        ended = self._standing.num_ended(self.outcomes)
        known = frozenset(self._known)
        self._outbox.open(self._outbox.run_ids, reopen=True, trial_ids=known)
        self._outbox.put(
            PARENT,
            files={path: str(Path(file).absolute()) for path, file in files.items()},
            tags=dict(tags),
            reports=[Report(ended, now_ms(), dict(metrics), once=False)] if metrics else [],
        )
        self._outbox.close()

    # What Tune calls.

    def setup(self, *args: Any, **info: Any) -> None:
        """Start the writer and put the parent run."""
        super().setup(*args, **info)
        state, self._restored = self._restored, {}
        self._begin(state)
        self._outbox.open(
            state.get("run_ids", {}),
            sweep_id=state.get("sweep_id") or self._given_id or uuid.uuid4().hex,
            reopen=bool(state) or self._given_id is not None,
            trial_ids=frozenset(self._known) if state else None,
        )
        page = self._page.at_start(self.outcomes, self._num_results)
        page["texts"].update(self._artifacts)
        self._outbox.put(PARENT, name=self._sweep_name, reopen=True, **page)
        for entry in state.get("unwritten", ()):  # a killed driver had not written it yet
            self._outbox.put_again(entry)
        self._gathering = threading.Thread(
            target=self._gather, name="tune_tf-environment", daemon=True
        )
        self._gathering.start()

    def on_trial_start(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """Open the trial's run, or note whose weights it goes on with."""
        super().on_trial_start(iteration, trials, trial, **info)
        clone = self._lineage.started(trial, trials, now_ms())
        if clone is not None:
            self._outbox.put(trial.trial_id, tags=clone.tags)

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
        trial_id, time_ms = trial.trial_id, now_ms()
        if run_id := self._outbox.run_id_of(trial_id):
            result[MLFLOW_RUN_ID] = run_id
        self._num_results += 1
        metrics = mlflow_metrics(result)
        step = int(result.get(TRAINING_ITERATION, 0))
        before, tags = self._lineage.reported(trial_id, step, time_ms, metrics)
        self._standing.reported(trial_id, step, metrics)
        node = result.get(NODE_IP)
        if self._nodes.get(trial_id) != node:
            self._nodes[trial_id] = node
            tags[NODE] = node_of(result)
        self._outbox.put(trial_id, tags=tags, reports=[*before, Report(step, time_ms, metrics)])

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """End all runs and wait until they are written."""
        if not self._outbox.is_open:
            return
        self._note_earlier(trials)
        super().on_experiment_end([trial for trial in trials if trial.trial_id in self._known])
        if self._gathering is not None:
            self._gathering.join(_GATHER_TIMEOUT_S)
            self._gathering = None
        page = self._page.at_end(trials, self.outcomes, self._num_results, resumed=self._resumed)
        clones = {LINEAGE_FILE: self._lineage.as_json()} if self._lineage.clones else {}
        ends = {key: end.value for key, end in self.outcomes.items() if key not in self._known}
        self._outbox.put(PARENT, texts=clones, ends=ends, **page)
        self._outbox.close()

    def get_state(self) -> dict[str, Any] | None:
        """Return what a resumed sweep needs, as far as it is known now; never waits."""
        if self.sweep_id is None:
            return None
        return {
            **(super().get_state() or {}),
            "sweep_id": self.sweep_id,
            "run_ids": self._outbox.run_ids,
            "trial_ids": sorted(self._known),
            "num_results": self._num_results,
            "unwritten": self._outbox.unwritten(),
            "standing": self._standing.state(),
            "lineage": self._lineage.state(),
            "environment": self._environment,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take up a sweep that was interrupted; Tune calls this before :meth:`setup`."""
        self._restored = state

    # One trial.

    def trial_opened(self, trial: Trial) -> None:
        """Open the trial's run."""
        if not self._named:
            self._named = True
            self._outbox.put(PARENT, name=trial.storage.experiment_dir_name)
        if trial.trial_id in self._known:
            self._outbox.put(trial.trial_id, reopen=True)
            return
        self._known.add(trial.trial_id)
        self._outbox.put(
            trial.trial_id,
            name=str(trial),
            params=mlflow_params(trial.config),
            texts=long_params_of(trial.config),
            tags={**self._details.at_start(trial), **self._source_once(trial.trial_id)},
            reopen=True,
            fresh=not own_report(trial),
        )

    def trial_ended(self, trial: Trial, outcome: Outcome, error: str | None) -> None:
        """End the trial's run, and show how the sweep stands on the parent."""
        reported = own_report(trial)
        last = {**reported, **mlflow_metrics(reported)}
        cause = run_outcome.cause_of(error) if error else last.get(STOP_CAUSE)
        feasible = self._standing.feasible(last)
        tags = {STOP_REASON_TAG: outcome.value, **self._details.at_end(last)}
        tags.update(self._source_once(trial.trial_id))
        if feasible is not None:
            tags[FEASIBLE_TAG] = str(feasible).lower()
        if cause:
            tags[STOP_CAUSE_TAG] = cut(str(cause), MAX_TAG_LENGTH)
        tags[descriptions.NOTE] = descriptions.trial_description(
            outcome,
            int(last.get(TRAINING_ITERATION, 0)),
            cause=cause,
            rung=tags.get(RUNG),
            objective=self._objective,
            last=last.get(self._objective.metric) if self._objective else None,
            best=self._standing.peak(trial.trial_id),
        )
        self._outbox.put(
            trial.trial_id,
            tags=tags,
            texts={"error.txt": run_outcome.plain(error)} if error else {},
            status=outcome.mlflow,
            end_ms=now_ms(),
        )
        if outcome is not Outcome.INTERRUPTED:
            self._forget(trial.trial_id)
            best = self._standing.ended(trial.trial_id, str(trial), trial.config, outcome, last)
            page = self._page.after_a_trial(self.outcomes, self._num_results, new_best=best)
            self._outbox.put(PARENT, **page)

    def _source_once(self, trial_id: str) -> dict[str, str]:
        """Return which code runs, once a trial, as soon as that is known."""
        if not self._source or trial_id in self._sourced:
            return {}
        self._sourced.add(trial_id)
        return self._source

    def _forget(self, trial_id: str) -> None:
        self._lineage.ended(trial_id)
        self._sourced.discard(trial_id)
        self._nodes.pop(trial_id, None)

    # The sweep.

    def _gather(self) -> None:
        """Put what the sweep runs on; in a thread of its own, since it takes a while."""
        repository = Repository.of_this_process()
        self._source = repository.tags() if repository is not None else {}
        texts = environment.texts(repository)
        self._environment, before = environment.environment_digest(texts), self._environment
        if before is not None:  # what the sweep was begun on stays
            texts = environment.of_a_resume(texts) if before != self._environment else {}
        self._outbox.put(PARENT, tags=self._source, texts=texts)
