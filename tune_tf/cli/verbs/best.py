"""``sweep.py best``: the best trial of a sweep."""

import sys
from typing import TYPE_CHECKING, Any

import typer

from tune_tf.cli.exit_codes import ExitCode
from tune_tf.cli.options import STORAGE_PATH, JsonOption, StoragePathOption, SweepArgument

if TYPE_CHECKING:
    from tune_tf.inspection import SweepView, TrialView


def best(
    sweep: SweepArgument,
    storage_path: StoragePathOption = STORAGE_PATH,
    as_json: JsonOption = False,
) -> None:
    """Print the best trial: its value, its config as YAML, and its checkpoint.

    What is not YAML is in comments: the whole can be pasted, under `space:` of a sweep file for
    example. While no trial has completed, it is the best so far. Exit code 1: no trial has a value.

    Example: `sweep.py best digits-cnn`
    """
    from tune_tf.cli.terminal.console import print_json
    from tune_tf.errors import UnknownMetricError
    from tune_tf.inspection import SweepView

    seen = SweepView.open(sweep, storage_path)
    try:
        _ = seen.result.best_trial
    except UnknownMetricError as error:
        sys.stderr.write(f"error: {error}\n")
        raise typer.Exit(ExitCode.NOTHING_COMPLETED) from error
    found = seen.trial(str(seen.result.best_trial.number))
    config = seen.config.space.active(found.result.config)
    if as_json:
        told = {"sweep_id": seen.sweep_id, "value": seen.best_value, **found.to_dict()}
        print_json({**told, "config": config})
    else:
        typer.echo(_text(seen, found, config), nl=False)


def _text(sweep: "SweepView", trial: "TrialView", config: dict[str, Any]) -> str:
    from tune_tf.cli.terminal.states import told_state
    from tune_tf.config import yaml_text

    objective = sweep.config.leading_objective
    lines = [
        f"{objective.metric}: {sweep.best_value!r} ({objective.mode}), of {sweep.sweep_id}",
        f"trial {trial.number} ({trial.trial_id}), {told_state(trial.state)} at iteration "
        f"{trial.result.iterations}",
        f"checkpoint: {trial.result.checkpoint or 'there is none'}",
    ]
    if sweep.state.value == "running":
        lines.append("the sweep is still running")
    return "".join(f"# {line}\n" for line in lines) + yaml_text(config, inline_leaves=False)
