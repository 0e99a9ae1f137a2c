"""Sweeps and plans as the terminal shows them."""

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from tune_tf.cli.console import (
    ExitCode,
    borderless_table,
    counted_states,
    local_time,
    make_console,
    named_values,
    print_json,
    state_label,
    state_text,
)
from tune_tf.formatting import counted, duration, printable, value_text
from tune_tf.inspection import SweepState, SweepView
from tune_tf.measure.extreme_configs import config_text
from tune_tf.outcome import Outcome
from tune_tf.results import SweepResult
from tune_tf.secrets import mask_secrets
from tune_tf.space import flatten

if TYPE_CHECKING:
    from tune_tf.sweep import SweepPlan


def print_plan(plan: "SweepPlan", warnings: Sequence[str] | None = None, *, as_json: bool) -> None:
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
    console.print(Text.assemble((config.name, "bold"), ": the settings are valid; ", ran))
    limit = counted(config.epochs, "epoch")
    lines = {
        "workload": config.workload_name,
        "objective": ", ".join(f"{it.mode} {it.metric}" for it in config.objectives),
        "constraints": ", ".join(map(str, config.constraints)),
        "searcher": config.searcher.sampler,
        "scheduler": f"{config.scheduler.name}, at most {limit}",
        "trials": f"{config.budget.num_samples}, {plan.max_concurrent_trials} at a time, each with "
        f"{plan.resources}",
        "for example": "\n".join(config_text(example) for example in plan.examples),
    }
    console.print(named_values({name: text for name, text in lines.items() if text}))
    for warning in warnings or ():
        console.print(f"warning: {warning}", style="yellow", soft_wrap=True)


def print_result(result: SweepResult, *, as_json: bool) -> ExitCode:
    """Print the result of a sweep; return the exit code."""
    if as_json:
        print_json(result.to_dict())
    else:
        print_status(SweepView.open(result.path), make_console())
    if result.interrupted:
        return ExitCode.INTERRUPTED
    return ExitCode.ENDED if result.count(Outcome.COMPLETED) else ExitCode.NOTHING_COMPLETED


def print_status(sweep: SweepView, console: Console) -> None:
    """Print how a sweep stands, and what to do next."""
    console.print(status_display(sweep))
    if sweep.state is not SweepState.RUNNING:
        _print_places(sweep.result, console)


def status_display(sweep: SweepView) -> RenderableType:
    """Return the display of a sweep."""
    head = Text.assemble((sweep.sweep_id, "bold"), "  ", state_text(sweep.state.value))
    head.append(f"  {sweep.num_ended}/{sweep.config.budget.num_samples} trials")
    times = [
        f"began {local_time(sweep.began_s)}",
        f"{duration(sweep.worked_s)} of work",
        counted(sweep.num_iterations, "epoch"),
    ]
    if sweep.left_s is not None:
        times.append(f"about {duration(sweep.left_s)} left")
    if sweep.state is SweepState.RUNNING and sweep.driver:
        times.append(f"by {sweep.driver}")
    parts: list[RenderableType] = [head, counted_states(sweep.counts), ", ".join(times)]
    if sweep.suspension:
        suspended = printable(f"New trials are suspended: {sweep.suspension}")
        parts.append(Text(suspended, style="yellow"))
    parts.append(_result(sweep.result))
    if sweep.running:
        parts += [Text(), _running(sweep)]
    return Group(*parts)


def _running(sweep: SweepView) -> Table:
    metrics = [objective.metric for objective in sweep.config.objectives]
    table = borderless_table("running", "epoch", *metrics, "trained", "node", wrap=["node"])
    for trial in sweep.running:
        result = trial.result
        values = (result.metrics.get(metric) for metric in metrics)
        table.add_row(
            str(trial.number),
            f"{result.iterations}/{sweep.config.epochs}",
            *("-" if value is None else value_text(value) for value in values),
            duration(trial.trained_s) if result.iterations else "-",
            trial.node or "-",
        )
    return table


def _result(result: SweepResult) -> RenderableType:
    """Return what a sweep has found, and what went wrong."""
    parts: list[RenderableType] = [
        Text(printable(f"  {it}"), style="red") for it in result.failures
    ]
    if result.ended_early:
        parts.append(f"Ended early: {result.ended_early}")
    if result.fingerprint is not None:
        parts.append(f"Fingerprint {result.fingerprint}")
        parts.append(f"  {result.fingerprint.origin}")
    best, metric = result.best_if_any, result.objective.metric
    if best is not None:
        state = state_label(best.outcome.value) if best.outcome else "not ended,"
        kept = f", kept: epoch {best.kept_iteration}" * best.keeps_earlier
        title = Text.assemble(
            "Best trial: ",
            (printable(f"{metric} {value_text(result.best_value)}"), "bold"),
            f" by number {best.number} ({best.trial_id}), {state} at epoch {best.iterations}{kept}",
        )
        first = {metric: best.metrics[metric]}
        config = result.config.space.active(best.config)
        values = {**first, **dict(sorted(best.metrics.items()))}
        values |= {**dict(sorted(best.test_metrics.items())), **flatten(config)}
        texts = {name: value_text(value) for name, value in values.items()}
        parts += [Text(), title, named_values(texts)]
    objectives = result.config.objectives
    if len(objectives) > 1 and result.pareto_front:
        table = borderless_table(
            "Pareto front: trial", *(f"{it.mode} {it.metric}" for it in objectives)
        )
        for trial in result.pareto_front:
            numbers = (value_text(objective.value(trial.metrics)) for objective in objectives)
            table.add_row(str(trial.number), *numbers)
        parts += [Text(), table]
    return Group(*parts)


def _print_places(result: SweepResult, console: Console) -> None:
    """Print where the results are, each path whole on a line that can be copied."""
    places = {}
    if result.best_if_any is not None and result.best_if_any.checkpoint is not None:
        places["Checkpoint"] = str(result.best_if_any.checkpoint)
    if result.interrupted:
        places["Resume with"] = f"{_command('tune-tf')} resume {result.path}"
    if result.report_path.exists():
        places["Report"] = str(result.report_path)
    if result.config.mlflow is not None:
        uri = mask_secrets(result.config.mlflow.tracking_uri)
        is_server = uri.startswith(("http://", "https://"))
        places["MLflow"] = (
            uri if is_server else f"{_command('mlflow')} ui --backend-store-uri {uri}"
        )
    if result.config.tensorboard:
        path = shlex.quote(str(result.path))
        places["TensorBoard"] = f"{_command('tensorboard')} --logdir {path}"
    for name, place in places.items():
        console.print(f"{name + ':':<12} {place}", soft_wrap=True)


def _command(name: str) -> str:
    """Return a command's name, or its path if the shell would not find it by name."""
    beside = Path(sys.executable).with_name(name)
    return name if shutil.which(name) or not beside.exists() else os.path.relpath(beside)
