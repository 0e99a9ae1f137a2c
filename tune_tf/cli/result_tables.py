"""Plans and results as tables and JSON."""

import contextlib
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tune_tf.cli.console import ExitCode, make_console, print_json, state_label
from tune_tf.formatting import counted, value_text
from tune_tf.outcome import Outcome
from tune_tf.results import SweepResult, TrialResult
from tune_tf.secrets import mask_secrets
from tune_tf.space import flatten
from tune_tf.sweep import SweepPlan


def print_plan(plan: SweepPlan, warnings: Sequence[str] | None = None, *, as_json: bool) -> None:
    """Print the plan of a sweep, with the warnings of a check that trained one batch, if any."""
    config = plan.config
    if as_json:
        print_json(
            {
                "config": config.to_dict(),
                "resources": asdict(plan.resources),
                "max_concurrent_trials": plan.max_concurrent_trials,
                "examples": plan.examples,
                "warnings": warnings or [],
            }
        )
        return
    console = make_console()
    ran = "nothing was run." if warnings is None else "one batch was trained, nothing else was run."
    console.print(
        Text.assemble(
            (config.name, "bold"),
            ": the settings are valid; ",
            ran,
        )
    )
    table = Table.grid(padding=(0, 2))
    table.add_row("workload", config.workload_name)
    table.add_row("objective", ", ".join(f"{it.mode} {it.metric}" for it in config.objectives))
    if config.constraints:
        table.add_row("constraints", ", ".join(map(str, config.constraints)))
    table.add_row("searcher", f"{config.searcher.name} {config.searcher.sampler}")
    limit = counted(config.scheduler.max_t, "epoch")
    table.add_row("scheduler", f"{config.scheduler.name}, at most {limit}")
    table.add_row(
        "trials",
        f"{config.budget.num_samples}, {plan.max_concurrent_trials} at a time, each with "
        f"{plan.resources}",
    )
    for number, example in enumerate(plan.examples):
        parts = ", ".join(f"{path}={value_text(value)}" for path, value in flatten(example).items())
        table.add_row("for example" if number == 0 else "", parts)
    console.print(table)
    for warning in warnings or ():
        console.print(f"Warning: {warning}", style="yellow", soft_wrap=True)


def print_result(result: SweepResult, *, as_json: bool) -> ExitCode:
    """Print the result of a sweep; return the exit code."""
    if as_json:
        print_json(_as_data(result))
    else:
        _print_tables(result, make_console())
    if result.interrupted:
        return ExitCode.INTERRUPTED
    return ExitCode.ENDED if result.count(Outcome.COMPLETED) else ExitCode.NOTHING_COMPLETED


def _as_data(result: SweepResult) -> dict[str, Any]:
    best = result.best_if_any
    return {
        "sweep_id": result.sweep_id,
        "path": str(result.path),
        "interrupted": result.interrupted,
        "ended_early": result.ended_early,
        "trials": {o.value: result.count(o) for o in Outcome if result.count(o)},
        "best": None
        if best is None
        else {
            "trial_id": best.trial_id,
            "number": best.number,
            "outcome": best.outcome.value if best.outcome else None,
            "config": best.config,
            "metrics": best.metrics,
            "test_metrics": best.test_metrics,
            "checkpoint": str(best.checkpoint) if best.checkpoint else None,
        },
        "pareto_front": [trial.number for trial in result.pareto_front],
        "mlflow_run_id": result.mlflow_run_id,
        "fingerprint": asdict(result.fingerprint) if result.fingerprint else None,
    }


def _print_tables(result: SweepResult, console: Console) -> None:
    best = result.best_if_any
    counts = ", ".join(
        f"{result.count(outcome)} {state_label(outcome.value)}"
        for outcome in Outcome
        if result.count(outcome)
    )
    state = "interrupted" if result.interrupted else "done"
    why = f"\nEnded early: {result.ended_early}" if result.ended_early else ""
    title = f" {state}: {len(result.trials)} trials ({counts}){why}"
    console.print(Text.assemble("\n", (result.sweep_id, "bold"), title))
    causes = "\n".join(f"  {failure}" for failure in result.failures)
    console.print(causes, style="red", soft_wrap=True, end="\n" if causes else "")
    if best is not None:
        kept = f", iteration {best.kept_iteration} of {best.iterations}" * best.keeps_earlier
        console.print(f"Best trial: number {best.number} ({best.trial_id}){kept}")
        console.print(_best_table(best, result.objective.metric))
        _print_line(console, f"Checkpoint: {best.checkpoint}")
    if len(result.config.objectives) > 1:
        _print_front(result, console)
    if result.interrupted:
        _print_line(console, f"Resume with: {_command('tune-tf')} resume {result.path}")
    if result.fingerprint is not None:
        _print_line(console, f"Fingerprint: {result.fingerprint}")
    if result.report_path.exists():
        _print_line(console, f"Report:      {result.report_path}")
    if result.config.mlflow is not None:
        uri = mask_secrets(result.config.mlflow.tracking_uri)
        is_server = uri.startswith(("http://", "https://"))
        hint = uri if is_server else f"{_command('mlflow')} ui --backend-store-uri {uri}"
        _print_line(console, f"MLflow:      {hint}")
    if result.config.tensorboard:
        hint = "" if find_spec("tensorboard") else "  (first: pip install tensorboard)"
        command = f"{_command('tensorboard')} --logdir {shlex.quote(str(result.path))}"
        _print_line(console, f"TensorBoard: {command}{hint}")


def _best_table(best: TrialResult, metric: str) -> Table:
    """Return the metrics, the objective's first, and the config of the best trial."""
    table = Table("", "value")
    metrics = {metric: best.metrics[metric], **dict(sorted(best.metrics.items()))}
    parts = metrics, dict(sorted(best.test_metrics.items())), flatten(best.config)
    for values in parts:
        for name, value in values.items():
            style = "bold" if name == metric and values is metrics else None
            table.add_row(name, value_text(value), style=style)
        table.add_section()
    return table


def _print_line(console: Console, text: str) -> None:
    console.print(text, soft_wrap=True)


def _print_front(result: SweepResult, console: Console) -> None:
    objectives = result.config.objectives
    headers = ("trial", *(f"{objective.mode} {objective.metric}" for objective in objectives))
    table = Table(*headers, title=f"Pareto front: {counted(len(result.pareto_front), 'trial')}")
    for trial in result.pareto_front:
        values = (value_text(objective.value(trial.metrics)) for objective in objectives)
        table.add_row(str(trial.number), *values)
    console.print(table)


def _command(name: str) -> str:
    """Return a command's name, or its path if the shell would not find it by name."""
    beside = Path(sys.executable).with_name(name)
    if shutil.which(name) == str(beside) or not beside.exists():
        return name
    with contextlib.suppress(ValueError):
        return str(beside.relative_to(Path.cwd()))
    return str(beside)
