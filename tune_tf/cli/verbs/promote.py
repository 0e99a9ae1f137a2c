"""``sweep.py promote``: an alias for a sweep's best model in MLflow's registry."""

import json
from typing import Annotated

import typer

from tune_tf.cli.options import STORAGE_PATH, JsonOption, StoragePathOption, SweepArgument


def promote(
    sweep: SweepArgument,
    alias: Annotated[str, typer.Option(help="The alias; another version loses it.")] = "champion",
    name: Annotated[
        str | None,
        typer.Option(
            help="The registered model; by default that of the sweep file, or the sweep's name."
        ),
    ] = None,
    retrained: Annotated[
        bool, typer.Option("--retrained", help="The final model that `retrain` has made last.")
    ] = False,
    storage_path: StoragePathOption = STORAGE_PATH,
    as_json: JsonOption = False,
) -> None:
    """Give the sweep's best model an alias in MLflow's registry, for those who serve it.

    Logs and registers the model first, if that was not done; never twice. Exit code 2: there is no
    such sweep or no best trial, or MLflow does not answer.

    Example: `sweep.py promote digits-cnn --alias champion --name digits`
    """
    from tune_tf.sweep.model.promote import promote_best

    done = promote_best(sweep, alias, name=name, retrained=retrained, storage_path=storage_path)
    if as_json:
        told = {
            "uri": done.uri,
            "version_uri": done.version_uri,
            "model_uri": done.model_uri,
            "before": done.before,
            "sweep_id": done.sweep_id,
            "trial_id": done.trial.trial_id,
            "number": done.trial.number,
        }
        typer.echo(json.dumps(told, indent=2))
        return
    typer.echo(f"{done.uri} is {done.version_uri}: trial {done.trial.number} of {done.sweep_id}")
    if done.before:
        typer.echo(f"Until now it was {done.before}")
