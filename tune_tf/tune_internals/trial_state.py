"""State of Tune's trials: last results, errors, status, checkpoints and running averages."""

import pickle
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ray.tune import Callback, Checkpoint, TuneError
from ray.tune.experiment import Trial
from ray.tune.result import TRAINING_ITERATION, TRIAL_ID

from tune_tf.errors import WorkerLostError
from tune_tf.secrets import mask_secrets

_ANSI = re.compile(r"\x1b\[\d+m")


def set_trial_status(controller: Any, trial: Trial, status: str) -> bool:
    """Set a trial's status in Tune; return False where the controller has no such method."""
    set_status = getattr(controller, "_set_trial_status", None)
    if set_status is None:
        return False
    set_status(trial, status)
    return True


def to_training_result(path: str, filesystem: Any, metrics: Mapping[str, Any]) -> Any:
    """Return a checkpoint as Tune's own state registers it, with the metrics of its iteration."""
    from ray.train._internal.session import _TrainingResult

    return _TrainingResult(Checkpoint(path, filesystem), dict(metrics))


def latest_result(trial: Trial) -> dict[str, Any]:
    """Return the last result of a trial; empty before the first.

    Unlike ``trial.last_result``, never waits for a starting actor and never changes the trial.
    """
    last: dict[str, Any] = trial.run_metadata.last_result
    return last if last and TRAINING_ITERATION in last else {}


def reported_result(trial: Trial) -> dict[str, Any]:
    """Return the last result that a trial itself reported; empty before the first.

    Until its first report, a trial cloned from another has the other's result.
    """
    last = latest_result(trial)
    return last if last.get(TRIAL_ID, trial.trial_id) == trial.trial_id else {}


def trial_folder(trial: Trial) -> str | None:
    """Return a trial's folder in the sweep's storage; None for one that never started."""
    try:
        return str(trial.path)
    except RuntimeError:  # Tune names the folder when it starts the trial
        return None


def trial_error(trial: Trial) -> str:
    """Return the error of a failed trial, with secrets masked; empty if Tune wrote none."""
    if not trial.error_file or not Path(trial.error_file).is_file():
        return ""
    return mask_secrets(Path(trial.error_file).read_text(errors="replace"))


def mask_error_files(trial: Trial) -> None:
    """Mask secrets in the error files that Tune wrote for a failed trial.

    Tune copies the files from a local folder to the storage; a remote storage gets its copy after
    this call. A pickled error with a secret is replaced by one with the masked text, since an
    arbitrary object cannot be masked.
    """
    names = [Path(path).name for path in (trial.error_file, trial.pickled_error_file) if path]
    folders = {Path(folder) for folder in (trial.local_path, trial.path) if folder}
    for path in (folder / name for folder in folders for name in names):
        if path.is_file():
            _mask_error_file(path)


def _mask_error_file(path: Path) -> None:
    text = path.read_text(errors="replace")
    masked_text = mask_secrets(text)
    if masked_text == text:
        return
    if path.suffix != ".pkl":
        path.write_text(masked_text)
        return
    beside = path.with_suffix(".txt")
    error = mask_secrets(beside.read_text(errors="replace")) if beside.is_file() else ""
    path.write_bytes(pickle.dumps(TuneError(error or "an error that contained a secret")))


def was_lost(trial: Trial) -> bool:
    """Return whether a failed trial lost a process or a node, rather than raised an error."""
    last = trial_error(trial).rpartition("Failure # ")[2].partition("\n")[2]
    text = _ANSI.sub("", last).lstrip()
    if WorkerLostError.__name__ in text:
        return True
    is_raised = text.startswith(("ray::", "Traceback"))  # how Ray writes the error of a task
    return not is_raised and "error raised in its creation task" not in text


def trial_number(trial: Trial) -> int:
    """Return a trial's number in order of suggestion, from 0."""
    match = re.match(r"\d+", trial.experiment_tag or "")
    return int(match[0]) - 1 if match else 0


def saved_iteration(trial: Trial) -> int:
    """Return the iteration after which a trial without an actor would continue; 0 for a new one."""
    latest = trial.latest_checkpoint_result
    return int(latest.metrics.get(TRAINING_ITERATION, 0)) if latest else 0


class NewTrials:
    """Finds the trials that Tune has made since the last look, without a walk over all of them.

    Tune appends them to its list, and moves a trial that it retries to the end.
    """

    def __init__(self) -> None:
        self._known: set[str] = set()

    def take(self, trials: Sequence[Trial]) -> list[Trial]:
        """Return the new ones, in order; ``trials`` are Tune's, all."""
        if trials and trials[0].trial_id not in self._known:
            self._known.clear()  # another run of Tune's
        new: list[Trial] = []
        for trial in reversed(trials):
            if len(self._known) + len(new) == len(trials):
                break
            if trial.trial_id not in self._known:
                new.append(trial)
        self._known.update(trial.trial_id for trial in new)
        return new[::-1]


class EndedTrials:
    """Finds the trials that have ended since the last look, without a walk over all of them.

    Attributes:
        unfinished: The trials that had not ended at the last look.
    """

    def __init__(self) -> None:
        self.unfinished: list[Trial] = []
        self._new = NewTrials()

    def take(self, trials: Sequence[Trial]) -> list[Trial]:
        """Return the trials that have ended since the last call; ``trials`` are Tune's, all."""
        new = self._new.take(trials)
        if len(new) == len(trials):
            self.unfinished = []
        seen = [*self.unfinished, *new]
        self.unfinished = [trial for trial in seen if not trial.is_finished()]
        return [trial for trial in seen if trial.is_finished()]


class RunningAverageTrimmer(Callback):
    """Tune callback that drops the running averages of finished trials.

    Tune keeps and saves them for each metric during the sweep: half of a trial's memory in the
    driver. A sweep's best trial is found by last values, so they are not needed.
    """

    def on_trial_complete(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """Drop the averages."""
        # Both: a trial that reported once more after all would begin them together.
        trial.run_metadata.metric_analysis = {}
        trial.run_metadata.metric_n_steps = {}

    on_trial_error = on_trial_complete
