"""Moments of a sweep at which its driver kills itself; as a script, such a driver.

    python kill_moments.py "after the last end" SIGKILL run tiny.yaml

runs the command line as ``scripts/sweep.py`` does, with one function replaced by one that counts
its calls and sends the signal at the right one. So a moment is the same one each time, however long
anything takes. Trials train nothing, and the best model is a folder without a model: what is killed
is the driver, and TensorFlow takes longer to load than all the rest of such a sweep.
"""

import importlib
import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ray import tune

NUM_TRIALS = 4
FAILS, IS_PRUNED = 1, 2
"""Values of ``batch_size`` by which a trial fails, or is stopped by hand."""


class Untrained(tune.Trainable):
    """Reports a curve that follows from the config, and saves what tells its iteration."""

    def setup(self, config: dict[str, Any]) -> None:
        """Take up a config."""
        self._values = config

    def step(self) -> dict[str, float]:
        """Do one iteration."""
        rate, iteration = self._values["learning_rate"], self.iteration + 1
        if self._values["batch_size"] == FAILS:
            raise RuntimeError("this trial fails")
        return {"val_accuracy": 1 - rate - 0.1 / iteration, "loss": rate + 0.1 / iteration}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write a file like those of the package's own trials."""
        head = np.array(json.dumps({"format": 1, "epoch": self.iteration}))
        np.savez(Path(checkpoint_dir, "trial.npz"), head=head)

    def load_checkpoint(self, checkpoint: str) -> None:
        """Go on: Tune counts the iterations."""

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take up another config."""
        self._values = new_config
        return True


class FolderWithoutModel:
    """Writes what MLflow takes for a model's folder, in a process of its own."""

    def write(self, workload: Any, config: Any, checkpoint: Any, path: Path, metadata: Any) -> None:
        """Write the folder."""
        from mlflow.models import Model

        from tune_tf.atomic_files import atomic_path

        with atomic_path(path) as folder:
            (folder / "data").mkdir(parents=True)
            (folder / "data" / "weights").write_text("of no model")
            time.sleep(1)  # long enough to be seen at it
            Model(metadata=metadata).save(str(folder / "MLmodel"))

    def evaluate(self, workload: Any, config: Any, checkpoint: Any) -> dict[str, float]:
        """Return metrics of no model."""
        return {"test_loss": 0.25}


@dataclass(frozen=True)
class Moment:
    """A call of a function of the driver.

    Args:
        where: ``module:attribute`` of the function.
        call: Which call of it, from 1.
        after: Whether the function does its work before.
        only: Which calls count, by their arguments; None for all.
        instead: Does a part of the function's work in its place.
    """

    where: str
    call: int = 1
    after: bool = False
    only: Callable[..., bool] | None = None
    instead: Callable[..., Any] | None = None

    def arm(self, blow: Callable[[], None]) -> None:
        """Replace the function by one that strikes at the moment."""
        module, _, path = self.where.partition(":")
        owner: Any = importlib.import_module(module)
        *parents, name = path.split(".")
        for parent in parents:
            owner = getattr(owner, parent)
        work, calls = getattr(owner, name), itertools.count(1)

        def counted(*args: Any, **options: Any) -> Any:
            counts = self.only is None or self.only(*args, **options)
            if not counts or next(calls) != self.call:
                return work(*args, **options)
            if self.instead is not None:
                self.instead(*args, **options)
            result = work(*args, **options) if self.after else None
            blow()
            return result if self.after else work(*args, **options)

        setattr(owner, name, counted)


def _is_forced(*_: Any, **options: Any) -> bool:
    return bool(options.get("force"))


def _is_all_written(writer: Any) -> bool:
    return writer._closing is not None and not writer._backlog and writer._queue.is_empty


def _is_last_write(runs: Any, entry: Any) -> bool:
    return entry.trials is not None


def _is_best_model(*args: Any) -> bool:
    return "tune_tf.best_model" in args


def _is_page(path: Path, *_: Any, **__: Any) -> bool:
    return path.name == "report.html"


def _half_of_a_line(file: int, line: bytes, path: Path) -> None:
    os.write(file, line[: len(line) // 2])


def _half_of_a_page(path: Path, text: str, **_: Any) -> None:
    path.with_name(f".{path.name}.{os.getpid()}").write_text(text[: len(text) // 2])


def _half_of_a_snapshot(path: Path, content: bytes) -> None:
    path.with_name(f".{path.name}.{os.getpid()}").write_bytes(content[: len(content) // 2])


def _until_the_process_writes(writer: Any, *arguments: Any) -> None:
    """Have the model's process begin, and wait until it has made its folder."""
    writer.start()
    workload, config, checkpoint, path, metadata = arguments
    writer._actor.write.remote(workload, config, checkpoint, path, dict(metadata))
    while not list(path.parent.glob(f".{path.name}.*")):
        time.sleep(0.01)


_CONTROLLER = "ray.tune.execution.tune_controller:TuneController"
_SEARCHER = "tune_tf.searchers.optuna_searcher:OptunaSearcher"
_EVENT_LOG = "tune_tf.events.event_log:EventLog"
_SNAPSHOTS = "tune_tf.sweep.state.snapshots"
_KEEP = "tune_tf.sweep.callbacks.state_saver:StateSaver"
_CALLBACK = "tune_tf.tracking.callback:MLflowCallback"
_CLIENT = "mlflow.tracking.client:MlflowClient"
_RUNS = "tune_tf.tracking.runs:SweepRuns"
_RESULT = "tune_tf.sweep.sweep_result"

MOMENTS = {
    # Before any trial runs.
    "before the event log begins": Moment(f"{_EVENT_LOG}.__enter__"),
    "the first config is drawn and Tune has it not": Moment(f"{_SEARCHER}.suggest", after=True),
    "the parent's run is made and nobody knows its id": Moment(f"{_CLIENT}.create_run", after=True),
    # While trials run.
    "the first trial has started and the event log has it not": Moment(
        f"{_EVENT_LOG}.record_start"
    ),
    "after the second start": Moment(f"{_EVENT_LOG}.record_start", 2, after=True),
    "before the first snapshot is written": Moment(f"{_SNAPSHOTS}:SnapshotWriter._write"),
    "a snapshot is half written": Moment(
        f"{_SNAPSHOTS}:write_atomically", 2, instead=_half_of_a_snapshot
    ),
    "a line of results is half written": Moment(
        "tune_tf.sweep.callbacks.recorders:append_line", 2, instead=_half_of_a_line
    ),
    "after the third result": Moment(
        "tune_tf.sweep.callbacks.recorders:ResultFiles.on_trial_result", 3, after=True
    ),
    # When a trial ends.
    "the study has the first end and MLflow has it not": Moment(
        f"{_SEARCHER}.on_trial_complete", after=True
    ),
    "after the first end": Moment(f"{_EVENT_LOG}.record_end", after=True),
    # When the last trial ends.
    "before the study has the last end": Moment(f"{_SEARCHER}.on_trial_complete", NUM_TRIALS),
    "the study has the last end and MLflow has it not": Moment(
        f"{_SEARCHER}.on_trial_complete", NUM_TRIALS, after=True
    ),
    "MLflow has the last end and the event log has it not": Moment(
        f"{_EVENT_LOG}.record_end", NUM_TRIALS
    ),
    "after the last end": Moment(f"{_EVENT_LOG}.record_end", NUM_TRIALS, after=True),
    # When Tune ends.
    "before Tune's last state": Moment(f"{_CONTROLLER}.checkpoint", only=_is_forced),
    "after Tune's last state": Moment(f"{_CONTROLLER}.checkpoint", after=True, only=_is_forced),
    "the parent's end is put and not written": Moment(
        "tune_tf.tracking.writing.writer:BackgroundWriter.close"
    ),
    "the queue is half drained": Moment(f"{_RUNS}.write", only=_is_last_write),
    "the parent's run has ended and the queue still has that": Moment(
        "tune_tf.tracking.writing.writer:BackgroundWriter._acknowledge", only=_is_all_written
    ),
    "before the study is settled": Moment(f"{_SEARCHER}.finish"),
    "after the study is settled": Moment(f"{_SEARCHER}.finish", after=True),
    "before the last snapshot": Moment(f"{_KEEP}.on_experiment_end"),
    "after the last snapshot": Moment(f"{_KEEP}.on_experiment_end", after=True),
    "after tune.run": Moment("ray.tune:run", after=True),
    # When best model and report are written.
    "while the best model's process writes": Moment(
        "tune_tf.sweep.model.export_process:ModelExportProcess.write",
        instead=_until_the_process_writes,
    ),
    "the best model is logged without its files": Moment(
        f"{_CLIENT}.create_logged_model", after=True
    ),
    "the best model is whole and no run names it": Moment(
        f"{_CLIENT}.finalize_logged_model", after=True
    ),
    "one run names the best model and the other does not": Moment(
        f"{_CLIENT}.set_tag", after=True, only=_is_best_model
    ),
    "the version is made and has no alias": Moment("mlflow:register_model", after=True),
    "the version has its alias and no run names it": Moment(
        f"{_CLIENT}.set_registered_model_alias", after=True
    ),
    "the event log has the test metrics and MLflow has them not": Moment(
        f"{_EVENT_LOG}.record_test", after=True
    ),
    "while the plots are drawn": Moment("tune_tf.report.plots:study_of", 3),
    "the report is half written": Moment(
        "tune_tf.report.report:write_atomically", only=_is_page, instead=_half_of_a_page
    ),
    "after the report": Moment(f"{_RESULT}:_write_report", after=True),
    "before the report is attached": Moment(f"{_CALLBACK}.attach"),
    "before the event log is closed": Moment(f"{_EVENT_LOG}.record_session_end"),
    "before the process ends": Moment("tune_tf.cli.sweep_display:print_result", after=True),
}
"""By name, in the order of a sweep."""


def main() -> None:
    """Arm one moment, then do what the command line says."""
    name, blow, *sys.argv[1:] = sys.argv[1:]
    train_nothing()
    if name:
        MOMENTS[name].arm(lambda: os.kill(os.getpid(), signal.Signals[blow]))
    from tune_tf.cli import main

    main()


def train_nothing() -> None:
    """Have the sweeps of this process train nothing."""
    from tune_tf.outcome import Outcome
    from tune_tf.sweep import parts, runner
    from tune_tf.sweep.model import export_process

    class Stopping(parts.BudgetLimit):
        def on_trial_start(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            super().on_trial_start(trial=trial, **info)
            if trial.config["batch_size"] == IS_PRUNED:
                self._stopper.end_trial(trial.trial_id, Outcome.PRUNED, "stopped by hand")

    parts.BudgetLimit = Stopping
    runner.trainable = lambda *_, **__: Untrained
    export_process.ExportActor = FolderWithoutModel


if __name__ == "__main__":
    main()
