"""``tune-tf resume``, ``extend`` and ``sync``: a sweep whose driver has ended."""

import os
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from tune_tf.cli import options
from tune_tf.cli.console import ExitCode, echo, exit_on_interrupt, print_json_or_lines
from tune_tf.sweep.config_diff import extended_budget
from tune_tf.sweep_folder import SweepFolder

if TYPE_CHECKING:
    from tune_tf.sweep.mlflow_store import Delivery


def extend(
    sweep: options.SweepArgument,
    limits: Annotated[
        list[str],
        typer.Argument(
            metavar="LIMIT=VALUE",
            help="Limits of the budget: a number, `+` and a number to add, or `none`.",
        ),
    ],
    storage_path: options.StoragePathOption = options.STORAGE_PATH,
    as_json: options.JsonOption = False,
) -> None:
    """Continue a sweep that ended or was interrupted, with a larger budget.

    The limits are those of the section `budget`, such as num_samples, time_budget_s, epochs or
    target. Ended trials are not run again, and the searcher keeps what it learned from them. Exit
    codes are those of `run`; 2 also if the sweep is running or nothing would change.

    Example: `tune-tf extend digits-cnn num_samples=+20 time_budget_s=none`
    """
    if wrong := [each for each in limits if "=" not in each]:
        raise typer.BadParameter(f"must be LIMIT=VALUE, such as num_samples=+20, not {wrong[0]}")
    budget = dict(each.split("=", 1) for each in limits)
    folder = SweepFolder.open(sweep, storage_path)
    options.allow_remote_ray(os.environ, folder.config.cluster.address)
    with exit_on_interrupt(f"the sweep is as before: {folder.path}"):
        from tune_tf.cli.progress import run_in_terminal
        from tune_tf.sweep import extend_sweep

        larger = extended_budget(folder.config.budget, budget)
        config = folder.config.model_copy(update={"budget": larger})
        run_in_terminal(partial(extend_sweep, folder.path, budget), config, as_json=as_json)


def resume(
    sweep: options.SweepArgument,
    allow_changes: Annotated[
        bool,
        typer.Option("--allow-changes", help="Accept edits of its sweep.yaml."),
    ] = False,
    storage_path: options.StoragePathOption = options.STORAGE_PATH,
    as_json: options.JsonOption = False,
) -> None:
    """Resume a sweep that was interrupted or killed.

    Ended trials are not run again; running ones continue from their last checkpoint. For a sweep
    that has ended, its result is printed again. If the `sweep.yaml` in its folder was edited, the
    changes are shown and refused; `--allow-changes` accepts those that a resume can apply, such as
    `budget.num_samples`.

    Example: `tune-tf resume digits-cnn`
    """
    folder = SweepFolder.open(sweep, storage_path)
    options.allow_remote_ray(os.environ, folder.config.cluster.address)
    with exit_on_interrupt(f"the sweep is as before: {folder.path}"):
        from tune_tf.cli.progress import run_in_terminal
        from tune_tf.cli.sweep_display import print_result
        from tune_tf.sweep import resume_sweep
        from tune_tf.sweep.sweep_result import finished_result

        if (result := finished_result(folder)) is not None:
            echo(f"{folder.sweep_id} has ended: there is nothing to resume", err=True)
            raise typer.Exit(print_result(result, as_json=as_json))
        config = (folder.edited() if allow_changes else None) or folder.config
        run = partial(resume_sweep, folder.path, allow_changes=allow_changes)
        run_in_terminal(run, config, as_json=as_json)


def sync(
    sweep: options.SweepArgument,
    storage_path: options.StoragePathOption = options.STORAGE_PATH,
    as_json: options.JsonOption = False,
) -> None:
    """Send to MLflow what it lacks of a sweep that has ended or was killed.

    A sweep continues while its MLflow store is down, and its folder has all results. Run this as
    often as you like: nothing is written twice. Exit code 1: MLflow still lacks something.

    Example: `tune-tf sync digits-cnn`
    """
    from tune_tf.sweep.mlflow_store import sync_sweep

    delivery = sync_sweep(sweep, storage_path=storage_path)
    print_json_or_lines(delivery, delivery_text(delivery), as_json=as_json)
    raise typer.Exit(ExitCode.NOTHING_COMPLETED if delivery.num_left else ExitCode.ENDED)


def delivery_text(delivery: "Delivery") -> str:
    """Return how MLflow stands, in a sentence."""
    if delivery.num_left:
        return f"MLflow still lacks something of {delivery.num_left} trials: {delivery.error}"
    refused = f", but for {delivery.num_refused} values that it rejected"
    return f"MLflow has all of the sweep{refused if delivery.num_refused else ''}."
