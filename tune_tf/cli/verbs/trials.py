"""``tune-tf trials``, ``show`` and ``logs``: the trials of a sweep."""

import time
from typing import Annotated

import typer
from rich.text import Text

from tune_tf.cli import options
from tune_tf.cli.console import (
    borderless_table,
    echo,
    echo_data,
    local_time,
    make_console,
    named_values,
    print_csv,
    print_json,
    state_text,
)
from tune_tf.formatting import duration, value_text
from tune_tf.inspection import SweepView, TrialView
from tune_tf.measure.extreme_configs import config_text
from tune_tf.record import TRIAL_LOG, SweepHistory, has_driver
from tune_tf.record.trial_log import log_text
from tune_tf.space import Constant, flatten


def trials(
    sweep: options.SweepArgument,
    top: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Only the N best, best first.")
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print all fields as CSV.")] = False,
    storage_path: options.StoragePathOption = options.STORAGE_PATH,
    as_json: options.JsonOption = False,
) -> None:
    """List the trials of a sweep as a table, CSV or JSON.

    Example: `tune-tf trials digits-cnn --top 10`
    """
    view = SweepView.open(sweep, storage_path)
    listed = view.trials
    if top is not None:
        listed = tuple(view.trial(each.trial_id) for each in view.result.best_first[:top])
    rows = [view.row(trial) for trial in listed]
    if as_json:
        print_json(rows)
    elif as_csv:
        print_csv([flatten({name: it for name, it in row.items() if it != {}}) for row in rows])
    else:
        _print_table(view, listed)


def _print_table(view: SweepView, listed: tuple[TrialView, ...]) -> None:
    metrics = [objective.metric for objective in view.config.objectives]
    parameters = view.config.space.parameters
    varied = {path for path, each in parameters.items() if not isinstance(each, Constant)}
    table = borderless_table("trial", "outcome", *metrics, "epochs", "config", wrap=["config"])
    for trial in listed:
        result, config = trial.result, view.active_config(trial)
        table.add_row(
            str(trial.number),
            state_text(trial.state),
            *(value_text(result.metrics[it]) if it in result.metrics else "-" for it in metrics),
            str(result.iterations),
            config_text({path: value for path, value in config.items() if path in varied}),
        )
    make_console().print(table)


def show(
    sweep: options.SweepArgument,
    trial: options.TrialArgument = None,
    storage_path: options.StoragePathOption = options.STORAGE_PATH,
    as_json: options.JsonOption = False,
) -> None:
    """Show one trial: config, outcome and cause, metrics, curve, checkpoints and error.

    Example: `tune-tf show digits-cnn 3`
    """
    view = SweepView.open(sweep, storage_path)
    trial_view = view.trial(trial or str(view.result.best_trial.number))
    metric = view.config.leading_objective.metric
    if as_json:
        print_json(
            {
                "sweep_id": view.sweep_id,
                **view.row(trial_view),
                "curve": {"metric": metric, "values": trial_view.curve(metric)},
                "checkpoints": trial_view.checkpoints,
                "log": trial_view.log,
                "error": trial_view.error or None,
            }
        )
    else:
        _print_trial(view, trial_view, metric)


def _print_trial(sweep: SweepView, trial: TrialView, metric: str) -> None:
    console, result = make_console(), trial.result
    console.print(
        Text.assemble((f"Trial {trial.number}", "bold"), f" ({trial.trial_id}) of "),
        Text(f"{sweep.sweep_id}: "),
        state_text(trial.state),
        sep="",
        soft_wrap=True,
    )
    console.print(named_values(_attributes(sweep, trial)))
    metrics = dict(sorted(result.metrics.items(), key=lambda it: (it[0] != metric, it[0])))
    kept = f"Metrics of epoch {result.kept_iteration}, the best"
    sections = {
        "Config": sweep.active_config(trial),
        kept if result.keeps_earlier else "Last metrics": metrics | dict(result.test_metrics),
    }
    for title, values in sections.items():
        console.print(title, style="bold")
        console.print(named_values({name: value_text(value) for name, value in values.items()}))
    curve = ", ".join(f"{value:.4g}" for value in trial.curve(metric).values())
    console.print("Each epoch", style="bold")
    console.print(named_values({metric: curve or "no results"}))
    none = "removed (keep_checkpoints)" if result.checkpoints_removed else "none"
    for title, paths in {
        "Checkpoints": [*map(str, trial.checkpoints)] or [none],
        "Log": [str(trial.log or "none")],
    }.items():
        console.print(title, style="bold")
        for path in paths:
            console.print(f"  {path}", soft_wrap=True)
    if trial.error:
        console.print("Error", style="bold red")
        console.print(trial.error, soft_wrap=True)


def _attributes(sweep: SweepView, trial: TrialView) -> dict[str, str]:
    result = trial.result
    attributes = {
        "cause": result.cause,
        "violates": "" if result.feasible else ", ".join(map(str, sweep.config.constraints)),
        "epochs": f"{result.iterations}, trained for {duration(trial.trained_s)}",
        "began": local_time(trial.began_s),
        "ended": local_time(trial.ended_s),
        "node": trial.node and f"{trial.node}, process {trial.pid}",
        "frozen layers": trial.frozen_layers,
        "graph": trial.graph,
        "MLflow run": trial.mlflow_run_id,
    }
    return {name: value for name, value in attributes.items() if value}


def logs(
    sweep: options.SweepArgument,
    trial: options.TrialArgument = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing until the trial has ended.")
    ] = False,
    tail: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Start with the last N lines.")
    ] = None,
    storage_path: options.StoragePathOption = options.STORAGE_PATH,
) -> None:
    """Print what a trial's processes wrote to stdout and stderr.

    TensorFlow's output is included; for the traceback of a failed trial, use `show`.

    Example: `tune-tf logs digits-cnn 3 --follow --tail 20`
    """
    view = SweepView.open(sweep, storage_path)
    trial_view = view.trial(trial or str(view.result.best_trial.number))
    path = trial_view.folder / TRIAL_LOG

    def is_over() -> bool:
        if not follow:
            return True
        recorded = SweepHistory.read(view.folder.path).trials[trial_view.trial_id]
        return recorded.outcome is not None or not has_driver(view.folder.path)

    for chunk in log_text(path, last_lines=tail, is_over=is_over, wait=time.sleep):
        echo_data(chunk)
    if trial_view.log is None:
        echo(f"trial {trial_view.number} has no log: {path} does not exist", err=True)
