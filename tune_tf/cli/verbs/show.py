"""``sweep.py show``: show one trial."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tune_tf.cli.options import (
    STORAGE_PATH,
    JsonOption,
    StoragePathOption,
    SweepArgument,
    TrialArgument,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tune_tf.inspection import SweepView, TrialView


def show(
    sweep: SweepArgument,
    trial: TrialArgument,
    storage_path: StoragePathOption = STORAGE_PATH,
    as_json: JsonOption = False,
) -> None:
    """Show one trial: config, outcome and cause, metrics, curve, checkpoints and error.

    Example: `sweep.py show digits-cnn 3`
    """
    from tune_tf.cli.terminal.console import print_json
    from tune_tf.inspection import SweepView

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
        _print(view, trial_view, metric)


def _print(sweep: "SweepView", trial: "TrialView", metric: str) -> None:
    from rich.text import Text

    from tune_tf.cli.terminal.console import make_console
    from tune_tf.cli.terminal.states import state_text
    from tune_tf.formatting import value_text
    from tune_tf.space import flat

    console, result, space = make_console(), trial.result, sweep.config.space
    title = Text.assemble(
        (f"Trial {trial.number}", "bold"), f" ({trial.trial_id}) of {sweep.sweep_id}: "
    )
    console.print(title + state_text(trial.state), soft_wrap=True)
    console.print(_table(_attributes(sweep, trial)))
    config = flat(space.active(result.config), space.parameters)
    console.print(Text("Config", style="bold"))
    console.print(_table({path: value_text(value) for path, value in config.items()}))
    console.print(Text("Last metrics", style="bold"))
    metrics = sorted(result.metrics.items(), key=lambda it: (it[0] != metric, it[0]))
    console.print(_table({name: value_text(value) for name, value in metrics}))
    console.print(Text(f"Curve of {metric}", style="bold"))
    console.print(Text(f"  {_curve(trial, metric)}"), soft_wrap=True)
    console.print(Text("Checkpoints", style="bold"))
    none = "removed (keep_checkpoints)" if result.checkpoints_removed else "none"
    for path in [*map(str, trial.checkpoints)] or [none]:
        console.print(Text(f"  {path}"), soft_wrap=True)
    if trial.error:
        console.print(Text("Error", style="bold red"))
        console.print(Text(trial.error), soft_wrap=True)


def _attributes(sweep: "SweepView", trial: "TrialView") -> dict[str, str]:
    from tune_tf.formatting import duration
    from tune_tf.inspection.trial_rows import local_time

    result = trial.result
    broken = "" if result.feasible else ", ".join(map(str, sweep.config.constraints))
    attributes = {
        "cause": result.cause,
        "violates": broken,
        "iterations": f"{result.iterations}, trained for {duration(trial.trained_s)}",
        "began": local_time(trial.began_s) or "never",
        "ended": local_time(trial.ended_s),
        "node": trial.node and f"{trial.node}, process {trial.pid}",
        "log": str(trial.log) if trial.log else None,
        "MLflow run": trial.mlflow_run_id or (sweep.config.mlflow and "not known"),
    }
    return {name: value for name, value in attributes.items() if value}


def _table(values: "Mapping[str, str]") -> "RenderableType":
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    for name, value in values.items():
        table.add_row(Text(name), Text(value, overflow="fold"))
    return Padding(table, (0, 0, 0, 2), expand=False)


def _curve(trial: "TrialView", metric: str) -> str:
    from tune_tf.cli.terminal.sparkline import sparkline
    from tune_tf.formatting import value_text

    values = list(trial.curve(metric).values())
    if not values:
        return "no results"
    return f"{sparkline(values)}  {value_text(values[0])} to {value_text(values[-1])}"
