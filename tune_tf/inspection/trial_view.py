"""View of one trial."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tune_tf.config import SweepConfig
from tune_tf.constraint import is_feasible
from tune_tf.errors import strip_colors
from tune_tf.outcome import STOP_CAUSE, Outcome, is_finite
from tune_tf.outcome_rules import error_cause, last_failure
from tune_tf.ranking import kept_iteration, kept_result
from tune_tf.record import TRIAL_LOG, RecordedTrial, recorded_results
from tune_tf.remote_storage import CheckpointLocation, join_uri
from tune_tf.result_keys import FROZEN_LAYERS, GRAPH, TRAINING_ITERATION
from tune_tf.results import TrialResult, kept_metrics
from tune_tf.secrets import mask_secrets
from tune_tf.space import flatten
from tune_tf.sweep_folder import trial_folder_name

_ERROR = "error.txt"


@dataclass(frozen=True)
class TrialView:
    """Snapshot of a trial, as the record of its sweep shows it.

    Args:
        state: How it ended, as :class:`~tune_tf.outcome.Outcome` calls it, else ``"running"``,
            ``"paused"`` by the scheduler, ``"pending"`` since a resume, or ``"interrupted"``.
        folder: Its folder, which exists once the trial has started.
        began_s: First start, in seconds since 1970; None if unknown.
        ended_s: End; None if it has not ended or the time is unknown.
        trained_s: Seconds spent in iterations.
        node: Host name and address of the node of its last result; empty without one.
        pid: Process of its last result.
        mlflow_run_id: Id of its run in MLflow, if known.
        checkpoints: Folders or URIs of its checkpoints, oldest first.
        frozen_layers: Which outputs of its frozen layers are shared, or why they are not.
        graph: Whether the graph of its epoch was traced for it, and why.
    """

    result: TrialResult
    state: str
    folder: Path
    began_s: float | None = None
    ended_s: float | None = None
    trained_s: float = 0.0
    node: str = ""
    pid: int | None = None
    mlflow_run_id: str | None = None
    checkpoints: Sequence[CheckpointLocation] = ()
    frozen_layers: str = ""
    graph: str = ""

    @classmethod
    def of(
        cls, sweep: Path, trial: RecordedTrial, config: SweepConfig, *, driven: bool
    ) -> "TrialView":
        """Return the view of a trial of a sweep's folder that has a driver, or has none."""
        folder = sweep / trial_folder_name(trial.number)
        last = flatten(trial.last)
        # Its driver may have been killed between its last result and its end.
        was_last = last.get("done") and not driven  # else it may run again
        outcome = trial.outcome or (Outcome.of_result(last) if was_last else None)
        cause = trial.cause or last.get(STOP_CAUSE)
        if cause is None and outcome in (Outcome.ERROR, Outcome.OOM):
            cause = error_cause(_error(folder)) or None
        kept = kept_result(last)
        checkpoints = _locations(trial.checkpoints, sweep, config)
        result = TrialResult(
            trial_id=trial.trial_id,
            number=trial.number,
            config=trial.config,
            outcome=outcome,
            cause=cause,
            iterations=int(last.get("training_iteration", 0)),
            metrics=kept_metrics(kept, config.constraints, config.objectives),
            checkpoint=checkpoints[-1] if checkpoints else None,
            feasible=is_feasible(config.constraints, kept),
            checkpoints_removed=trial.checkpoints_removed,
            kept_iteration=kept_iteration(last),
            test_metrics=trial.test_metrics,
        )
        names = (str(last[name]) for name in ("hostname", "node_ip") if last.get(name))
        pid = last.get("pid")
        return cls(
            result=result,
            state=_state(outcome, trial, driven=driven),
            folder=folder,
            began_s=trial.started_s,
            ended_s=trial.ended_s,
            trained_s=_number(last.get("time_total_s")) or 0.0,
            node=" ".join(dict.fromkeys(names)),
            pid=pid if isinstance(pid, int) else None,
            mlflow_run_id=trial.run_id,
            checkpoints=checkpoints,
            frozen_layers=mask_secrets(str(last.get(FROZEN_LAYERS, ""))),
            graph=str(last.get(GRAPH, "")),
        )

    @property
    def trial_id(self) -> str:
        """Ray Tune's id."""
        return self.result.trial_id

    @property
    def number(self) -> int:
        """Position in the order of proposal, from 0."""
        return self.result.number

    @property
    def has_ended(self) -> bool:
        """Whether it has ended for good, so a resume would not continue it."""
        return self.result.outcome not in (None, Outcome.INTERRUPTED)

    @property
    def error(self) -> str:
        """Text of its last failure, without colors and secrets; empty without one."""
        return last_failure(_error(self.folder)).strip()

    @property
    def log(self) -> Path | None:
        """File with stdout and stderr of its processes; None if there is none."""
        path = self.folder / TRIAL_LOG
        return path if path.is_file() else None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data; the outcome is the state, times are in seconds since 1970."""
        own = {**vars(self), "outcome": self.state, "folder": str(self.folder)}
        del own["result"], own["state"], own["checkpoints"]
        return {**self.result.to_dict(), **own}

    def curve(self, metric: str) -> dict[int, float]:
        """Return a metric's finite values by iteration, the last one of a repeated iteration.

        Those after its last one are left out: it went on from an earlier one, and did not come so
        far again.
        """
        values: dict[int, float] = {}
        for result in recorded_results(self.folder.parent, self.number):
            value: Any = result[metric] if metric in result else flatten(result).get(metric)
            if is_finite(value):
                values[int(result[TRAINING_ITERATION])] = float(value)
        return {at: values[at] for at in sorted(values) if at <= self.result.iterations}


def _state(outcome: Outcome | None, trial: RecordedTrial, *, driven: bool) -> str:
    if outcome is not None:
        return str(outcome.value)
    return trial.state if driven else str(Outcome.INTERRUPTED.value)


def _locations(
    paths: Iterable[str], sweep: Path, config: SweepConfig
) -> Sequence[CheckpointLocation]:
    """Return the locations of paths in a sweep's storage, of local ones those that exist."""
    if config.remote_storage is not None:
        uri = join_uri(config.remote_storage, sweep.name)
        return [join_uri(uri, path) for path in paths]
    folders = (sweep / path for path in paths)
    return [folder for folder in folders if os.path.isdir(folder)]  # noqa: PTH112 - never raises


def _error(folder: Path) -> str:
    try:
        text = (folder / _ERROR).read_text(errors="replace")
    except OSError:
        return ""
    return mask_secrets(strip_colors(text))


def _number(value: Any) -> float | None:
    return float(value) if is_finite(value) else None
