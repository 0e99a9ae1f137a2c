"""``sweep.py promote``: set an alias for a sweep's best model in MLflow's registry."""

import json
from typing import Annotated

import typer

from tune_tf.cli.options import STORAGE_PATH, JsonOption, StoragePathOption, SweepArgument


def promote(
    sweep: SweepArgument,
    alias: Annotated[
        str, typer.Option(help="The alias; it moves here from any other version.")
    ] = "champion",
    name: Annotated[
        str | None,
        typer.Option(
            help="The registered model; default: that of the sweep file, or the sweep's name."
        ),
    ] = None,
    retrained: Annotated[
        bool, typer.Option("--retrained", help="Promote the latest final model of `retrain`.")
    ] = False,
    storage_path: StoragePathOption = STORAGE_PATH,
    as_json: JsonOption = False,
) -> None:
    """Give the sweep's best model an alias in MLflow's registry.

    Logs and registers the model first if necessary, never twice. Exit code 2: no such sweep, no
    best trial, or MLflow does not respond.

    Example: `sweep.py promote digits-cnn --alias champion --name digits`
    """
    from tune_tf.sweep.model.best_model import promote_best

    done = promote_best(sweep, alias, name=name, retrained=retrained, storage_path=storage_path)
    if as_json:
        data = {
            "uri": done.uri,
            "version_uri": done.version_uri,
            "model_uri": done.model_uri,
            "before": done.before,
            "sweep_id": done.sweep_id,
            "trial_id": done.trial.trial_id,
            "number": done.trial.number,
        }
        typer.echo(json.dumps(data, indent=2))
        return
    typer.echo(f"{done.uri} is {done.version_uri}: trial {done.trial.number} of {done.sweep_id}")
    if done.before:
        typer.echo(f"Previously: {done.before}")
