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

    Everything but the config is in comments, so the output is valid YAML. Until a trial has
    completed, it is the best one so far. Exit code 1: no trial has a value.

    Example: `sweep.py best digits-cnn`
    """
    from tune_tf.cli.terminal.console import print_json
    from tune_tf.errors import UnknownMetricError
    from tune_tf.inspection import SweepView

    view = SweepView.open(sweep, storage_path)
    try:
        _ = view.result.best_trial
    except UnknownMetricError as error:
        sys.stderr.write(f"error: {error}\n")
        raise typer.Exit(ExitCode.NOTHING_COMPLETED) from error
    best_trial_view = view.trial(str(view.result.best_trial.number))
    config = view.config.space.active(best_trial_view.result.config)
    if as_json:
        data = {"sweep_id": view.sweep_id, "value": view.best_value, **best_trial_view.to_dict()}
        print_json({**data, "config": config})
    else:
        typer.echo(_text(view, best_trial_view, config), nl=False)


def _text(sweep: "SweepView", trial: "TrialView", config: dict[str, Any]) -> str:
    from tune_tf.cli.terminal.states import state_label
    from tune_tf.config import yaml_text

    objective = sweep.config.leading_objective
    lines = [
        f"{objective.metric}: {sweep.best_value!r} ({objective.mode}), of {sweep.sweep_id}",
        f"trial {trial.number} ({trial.trial_id}), {state_label(trial.state)} at iteration "
        f"{trial.result.iterations}",
        f"checkpoint: {trial.result.checkpoint or 'none'}",
    ]
    if sweep.state.value == "running":
        lines.append("the sweep is still running")
    return "".join(f"# {line}\n" for line in lines) + yaml_text(config, inline_leaves=False)
