"""``tune-tf trials``, ``show``, ``logs`` and ``best``: the trials of a sweep."""

import time
from typing import Annotated

import typer
from rich.text import Text

from tune_tf.cli import options
from tune_tf.cli.console import (
    ExitCode,
    FittingTable,
    echo,
    echo_data,
    make_console,
    named_values,
    print_json,
    sparkline,
    state_label,
    state_text,
)
from tune_tf.errors import UnknownMetricError
from tune_tf.events import TRIAL_LOG, EventHistory, has_driver
from tune_tf.events.trial_log import log_text
from tune_tf.formatting import duration, value_text
from tune_tf.inspection import SweepView, TrialRows, TrialView
from tune_tf.inspection.trial_rows import local_time
from tune_tf.space.document import yaml_text


def trials(
    sweep: options.SweepArgument,
    sort: Annotated[
        str,
        typer.Option(
            metavar="FIELD",
            help="A metric (objectives: best first), a parameter, number, began, "
            "iterations, trained_s, outcome ...",
        ),
    ] = "number",
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD=VALUE",
            help="Filter; = != < <= > >=. Repeatable: all must hold.",
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Maximum number of rows.")] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print all fields as CSV.")] = False,
    storage_path: options.StoragePathOption = options.STORAGE_PATH,
    as_json: options.JsonOption = False,
) -> None:
    """List the trials of a sweep, filtered and sorted, as a table, CSV or JSON.

    Example: `tune-tf trials digits-cnn --where outcome=completed --sort val_accuracy --limit 10`
    """
    all_rows = TrialRows.of(SweepView.open(sweep, storage_path))
    rows = all_rows.where(where or []).sorted(sort).limited(limit)
    if as_json:
        print_json(rows.rows)
    elif as_csv:
        echo_data(rows.to_csv().encode(errors="surrogateescape"))
    else:
        _print_rows(rows, len(all_rows.rows))


def _print_rows(rows: TrialRows, num_all: int) -> None:
    metrics = [objective.metric for objective in rows.sweep.config.objectives]
    paths = [name for name in rows.fields if name.startswith("config/")]
    names = (path.removeprefix("config/") for path in paths)
    headers = ("trial", "id", "outcome", *metrics, "iterations", *names, "trained", "began")
    table = FittingTable(*headers, kept=3 + len(metrics))
    for row in rows.rows:
        table.add_row(
            str(row["number"]),
            row["trial_id"],
            state_text(row["outcome"]),
            *(value_text(row[metric]) if metric in row else "-" for metric in metrics),
            str(row["iterations"]),
            *(value_text(row[path], 24) if path in row else "-" for path in paths),
            duration(row["trained_s"]) if row["iterations"] else "-",
            row.get("began", "-"),
        )
    console = make_console()
    console.print(table)
    if len(rows.rows) < num_all:
        console.print(f"{len(rows.rows)} of {num_all} trials", style="dim")


def show(
    sweep: options.SweepArgument,
    trial: options.TrialArgument,
    storage_path: options.StoragePathOption = options.STORAGE_PATH,
    as_json: options.JsonOption = False,
) -> None:
    """Show one trial: config, outcome and cause, metrics, curve, checkpoints and error.

    Example: `tune-tf show digits-cnn 3`
    """
    view = SweepView.open(sweep, storage_path)
    trial_view = view.trial(trial)
    metric = view.config.leading_objective.metric
    if as_json:
        print_json(
            {
                "sweep_id": view.sweep_id,
                **trial_view.to_dict(),
                "curve": {"metric": metric, "values": trial_view.curve(metric)},
                "checkpoints": [str(path) for path in trial_view.checkpoints],
                "log": str(trial_view.log) if trial_view.log else None,
                "error": trial_view.error or None,
            }
        )
    else:
        _print_trial(view, trial_view, metric)


def _print_trial(sweep: SweepView, trial: TrialView, metric: str) -> None:
    console, result = make_console(), trial.result
    title = Text.assemble(
        (f"Trial {trial.number}", "bold"), f" ({trial.trial_id}) of {sweep.sweep_id}: "
    )
    console.print(title + state_text(trial.state), soft_wrap=True)
    console.print(named_values(_attributes(sweep, trial)))
    console.print(Text("Config", style="bold"))
    config = sweep.active_config(trial)
    console.print(named_values({path: value_text(value) for path, value in config.items()}))
    kept = f"Metrics of iteration {result.kept_iteration}, the best"
    console.print(Text(kept if result.keeps_earlier else "Last metrics", style="bold"))
    metrics = sorted(result.metrics.items(), key=lambda it: (it[0] != metric, it[0]))
    console.print(named_values({name: value_text(value) for name, value in metrics}))
    console.print(Text(f"Curve of {metric}", style="bold"))
    values = list(trial.curve(metric).values())
    curve = "no results"
    if values:
        curve = f"{sparkline(values)}  {value_text(values[0])} to {value_text(values[-1])}"
    console.print(Text(f"  {curve}"), soft_wrap=True)
    console.print(Text("Checkpoints", style="bold"))
    none = "removed (keep_checkpoints)" if result.checkpoints_removed else "none"
    for path in [*map(str, trial.checkpoints)] or [none]:
        console.print(Text(f"  {path}"), soft_wrap=True)
    console.print(Text("Log", style="bold"))
    console.print(Text(f"  {trial.log or 'none'}"), soft_wrap=True)
    if trial.error:
        console.print(Text("Error", style="bold red"))
        console.print(Text(trial.error), soft_wrap=True)


def _attributes(sweep: SweepView, trial: TrialView) -> dict[str, str]:
    result = trial.result
    attributes = {
        "cause": result.cause,
        "violates": "" if result.feasible else ", ".join(map(str, sweep.config.constraints)),
        "iterations": f"{result.iterations}, trained for {duration(trial.trained_s)}",
        "began": local_time(trial.began_s) or "never",
        "ended": local_time(trial.ended_s),
        "node": trial.node and f"{trial.node}, process {trial.pid}",
        "frozen layers": trial.frozen_layers,
        "graph": trial.graph,
        "MLflow run": trial.mlflow_run_id or (sweep.config.mlflow and "not known"),
    }
    return {name: value for name, value in attributes.items() if value}


def logs(
    sweep: options.SweepArgument,
    trial: options.TrialArgument,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing until the trial has ended.")
    ] = False,
    tail: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Start with the last N lines.")
    ] = None,
    storage_path: options.StoragePathOption = options.STORAGE_PATH,
    as_json: options.JsonOption = False,
) -> None:
    """Print what a trial's processes wrote to stdout and stderr.

    TensorFlow's output is included; for the traceback of a failed trial, use `show`. With
    `--json`, the whole log is printed at once.

    Example: `tune-tf logs digits-cnn 3 --follow --tail 20`
    """
    view = SweepView.open(sweep, storage_path)
    trial_view = view.trial(trial)
    path = trial_view.folder / TRIAL_LOG

    def is_over() -> bool:
        if not follow:
            return True
        events = EventHistory.read(view.folder.path).trials.get(trial_view.trial_id)
        has_ended = events is not None and events.outcome is not None
        return has_ended or not has_driver(view.folder.path)

    chunks = log_text(path, last_lines=tail, is_over=is_over, wait=time.sleep)
    if as_json:
        text = b"".join(chunks).decode(errors="replace")
        print_json({"trial_id": trial_view.trial_id, "path": str(path), "text": text})
        return
    for chunk in chunks:
        echo_data(chunk)
    if trial_view.log is None:
        echo(f"trial {trial_view.number} has no log: {path} does not exist", err=True)


def best(
    sweep: options.SweepArgument,
    storage_path: options.StoragePathOption = options.STORAGE_PATH,
    as_json: options.JsonOption = False,
) -> None:
    """Print the best trial: its value, its config as YAML, and its checkpoint.

    Everything but the config is in comments, so the output is valid YAML. Until a trial has
    completed, it is the best one so far. Exit code 1: no trial has a value.

    Example: `tune-tf best digits-cnn`
    """
    view = SweepView.open(sweep, storage_path)
    try:
        trial = view.trial(str(view.result.best_trial.number))
    except UnknownMetricError as error:
        echo(f"error: {error}", err=True)
        raise typer.Exit(ExitCode.NOTHING_COMPLETED) from error
    config = view.config.space.active(trial.result.config)
    if as_json:
        data = {"sweep_id": view.sweep_id, "value": view.best_value, **trial.to_dict()}
        print_json({**data, "config": config})
        return
    objective = view.config.leading_objective
    lines = [
        f"{objective.metric}: {view.best_value!r} ({objective.mode}), of {view.sweep_id}",
        f"trial {trial.number} ({trial.trial_id}), {state_label(trial.state)} at iteration "
        f"{trial.result.iterations}"
        + (f", kept: iteration {trial.result.kept_iteration}" * trial.result.keeps_earlier),
        f"checkpoint: {trial.result.checkpoint or 'none'}",
    ]
    if tests := trial.result.test_metrics:
        values = ", ".join(f"{name} {value_text(value)}" for name, value in sorted(tests.items()))
        lines.insert(1, f"on the test rows: {values}")
    if view.state.value == "running":
        lines.append("the sweep is still running")
    echo(*(f"# {line}" for line in lines), yaml_text(config, inline_leaves=False).rstrip())
