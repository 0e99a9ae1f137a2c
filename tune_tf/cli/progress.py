"""Progress, warnings and signals while a sweep runs."""

import contextlib
import logging
import math
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Self

import ray
import typer
from ray.tune import Callback
from ray.tune.experiment import Trial
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tune_tf.cli.console import STATE_STYLES, counted_states, sparkline
from tune_tf.cli.result_tables import print_result
from tune_tf.config import SweepConfig
from tune_tf.constraint import is_feasible
from tune_tf.formatting import duration, value_text
from tune_tf.outcome import Outcome
from tune_tf.ranking import Candidate, best_of, best_so_far
from tune_tf.results import SweepResult
from tune_tf.secrets import mask_secrets
from tune_tf.tune_internals.trial_state import latest_result

_LIVE_EVERY_S = 0.25
_LOG_EVERY_S = 10.0


class TerminalProgress(Callback):
    """Ray Tune callback that displays the state of a sweep, or logs a line every 10 s."""

    def __init__(
        self,
        config: SweepConfig,
        console: Console,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._console = console
        self._clock = clock
        self._begun = self._drawn = clock()
        self._every_s = _LIVE_EVERY_S if console.is_terminal else _LOG_EVERY_S
        self._cluster: dict[str, float] = {}
        self._ended: set[str] = set()
        self._values: list[float] = []
        self._done_before: int | None = None
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __reduce__(self) -> tuple[Callable[[SweepConfig], "TerminalProgress"], tuple[SweepConfig]]:
        """Draw on stderr of the process that unpickles it, the driver."""
        return _on_stderr, (self._config,)

    def __enter__(self) -> Self:
        """Start drawing."""
        self._say(Text(f"{self._config.name}: starting Ray ...", style="dim"))
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Stop drawing."""
        self._live.stop()

    def on_step_end(self, trials: list[Trial], **info: Any) -> None:
        """Redraw at most every so many seconds."""
        if self._done_before is None:
            self._done_before = sum(trial.is_finished() for trial in trials)
        now = self._clock()
        if now - self._drawn >= self._every_s:
            self._drawn = now
            self._draw(trials)

    def _draw(self, trials: list[Trial]) -> None:
        counts = Counter(trial_state(trial) for trial in trials)
        done = sum(trial.is_finished() for trial in trials)
        if self._console.is_terminal:
            self._live.update(self._picture(trials, counts, done), refresh=True)
        else:
            self._say(Text(f"{self._line(counts, done)}; {self._best(trials)}"))

    def _picture(self, trials: list[Trial], counts: Counter[str], done: int) -> RenderableType:
        total = self._config.budget.num_samples
        table = Table.grid(padding=(0, 2))
        table.add_row(
            Text(self._config.name, style="bold"),
            ProgressBar(total=total, completed=done, width=32),
            f"{done}/{total} trials",
            self._times(done),
        )
        rows: list[RenderableType] = [
            table,
            Text("  ").join([counted_states(counts), Text(self._pace(trials, done), "dim")]),
            Text(self._best(trials)),
        ]
        curve = self._best_so_far(trials)
        if len(curve) > 1:
            first, last = value_text(curve[0]), value_text(curve[-1])
            rows.append(Text.assemble((f"{first} ", "dim"), sparkline(curve), (f" {last}", "dim")))
        return Group(*rows)

    def _pace(self, trials: list[Trial], done: int) -> str:
        """Return the reserved resources and the rate of trials."""
        reserved: Counter[str] = Counter()
        for trial in trials:
            if trial.status == Trial.RUNNING:
                reserved.update(trial.placement_group_factory.required_resources)
        self._cluster = self._cluster or ray.cluster_resources()
        parts = [
            f"{reserved[name]:g}/{self._cluster[name]:g} {name}s"
            for name in ("CPU", "GPU")
            if self._cluster.get(name)
        ]
        minutes = max(self._clock() - self._begun, 1.0) / 60
        if new := done - (self._done_before or 0):
            parts.append(f"{new / minutes:.3g} trials per minute")
        epochs = sum(int(latest_result(trial).get("training_iteration", 0)) for trial in trials)
        return ", ".join([*parts, f"{epochs} epochs"])

    def _best_so_far(self, trials: list[Trial]) -> list[float]:
        """Return the best value after each ended trial."""
        objective = self._config.leading_objective
        for trial in trials:
            if trial.is_finished() and trial.trial_id not in self._ended:
                self._ended.add(trial.trial_id)
                last = latest_result(trial)
                if is_feasible(self._config.constraints, last):
                    self._values.append(last.get(objective.metric, math.nan))
        return best_so_far(self._values, objective)

    def _line(self, counts: Counter[str], done: int) -> str:
        states = ", ".join(f"{counts[name]} {name}" for name in STATE_STYLES if counts[name])
        return f"{done}/{self._config.budget.num_samples} trials ({states}), {self._times(done)}"

    def _times(self, done: int) -> str:
        elapsed, budget = self._clock() - self._begun, self._config.budget
        left = [budget.time_budget_s - elapsed] if budget.time_budget_s else []
        if new := done - (self._done_before or 0):
            left.append(elapsed / new * (budget.num_samples - done))
        text = f"{_whole_seconds(elapsed)} elapsed"
        return f"{text}, at most {_whole_seconds(min(left))} left" if left else text

    def _best(self, trials: list[Trial]) -> str:
        objective = self._config.leading_objective
        best = best_of(
            (
                Candidate(
                    number,
                    Outcome.of_result(last),
                    last.get(objective.metric),
                    is_feasible(self._config.constraints, last),
                )
                for number, last in enumerate(map(latest_result, trials))
            ),
            objective,
        )
        if best is None:
            return "no result yet"
        config = ", ".join(f"{k}={value_text(v)}" for k, v in trials[best.key].config.items())
        return f"best {objective.metric} {value_text(best.value)} by {trials[best.key]}: {config}"

    def _say(self, text: Text) -> None:
        self._console.print(text, highlight=False, soft_wrap=True)


def _on_stderr(config: SweepConfig) -> TerminalProgress:
    return TerminalProgress(config, Console(stderr=True))


def trial_state(trial: Trial) -> str:
    """Return a trial's state or outcome."""
    if trial.status == Trial.ERROR:
        return Outcome.ERROR.value
    if trial.is_finished():
        outcome = Outcome.of_result(latest_result(trial))
        return (outcome or Outcome.COMPLETED).value
    return "running" if trial.status == Trial.RUNNING else "pending"


def _whole_seconds(seconds: float) -> str:
    return duration(max(0, round(seconds)))


class _EndOnSigterm(Callback):
    """Treats SIGTERM as Ctrl-C; installed after Ray has installed its own handler."""

    def setup(self, *args: Any, **info: Any) -> None:
        def interrupt(_signal: int, _frame: FrameType | None) -> None:
            os.kill(os.getpid(), signal.SIGINT)

        signal.signal(signal.SIGTERM, interrupt)


@contextlib.contextmanager
def session(config: SweepConfig, *, quiet: bool) -> Iterator[list[Callback]]:
    """Show progress and handle signals while a sweep runs; yield Ray Tune callbacks for it.

    Warnings are printed even if ``quiet``.
    """
    before = signal.getsignal(signal.SIGTERM)
    logging.getLogger("ray.tune.tune").setLevel(logging.CRITICAL)  # the report has it
    console = Console(stderr=True, quiet=quiet)
    warnings = Console(stderr=True) if quiet else console  # with --json too
    with TerminalProgress(config, console) as progress, warnings_above_progress(warnings):
        try:
            yield [progress, _EndOnSigterm()]
        finally:
            signal.signal(signal.SIGTERM, before)


def run_in_terminal(
    drive: Callable[..., SweepResult], config: SweepConfig, *, as_json: bool
) -> None:
    """Run a sweep with progress, print its result, and exit with its code.

    ``drive`` receives Ray Tune callbacks.
    """
    with session(config, quiet=as_json) as callbacks:
        result = drive(callbacks=callbacks)
    raise typer.Exit(print_result(result, as_json=as_json))


class _WarningPrinter(logging.Handler):
    """Prints each warning once, above the live display."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.WARNING)
        self._console = console
        self._printed: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        text = f"{record.levelname.lower()}: {record.getMessage()}"
        if text not in self._printed:
            self._printed.add(text)
            style = "red" if record.levelno >= logging.ERROR else "yellow"
            self._console.print(Text(mask_secrets(text), style), soft_wrap=True)


@contextlib.contextmanager
def warnings_above_progress(console: Console) -> Iterator[None]:
    """Print each warning of tune_tf once, above the live display of a console."""
    logger, handler = logging.getLogger("tune_tf"), _WarningPrinter(console)
    logger.addHandler(handler)
    logger.propagate, propagated = False, logger.propagate
    try:
        yield
    finally:
        logger.propagate = propagated
        logger.removeHandler(handler)
