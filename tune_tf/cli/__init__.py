"""The command line: one module per verb, each a thin layer over a Python function.

Exit codes: 0 the sweep ended; 1 it ended without a completed trial, or an unexpected error
occurred; 2 invalid settings, workload or resources; 130 interrupted, can be resumed.
"""

import os
import sys

import typer

from tune_tf.cli.exit_codes import exit_on_errors
from tune_tf.cli.terminal.local_ray import keep_ray_local
from tune_tf.cli.verbs.best import best
from tune_tf.cli.verbs.compare import compare_command
from tune_tf.cli.verbs.export import export
from tune_tf.cli.verbs.init import init, schema
from tune_tf.cli.verbs.list import list_command
from tune_tf.cli.verbs.logs import logs
from tune_tf.cli.verbs.plan import plan
from tune_tf.cli.verbs.promote import promote
from tune_tf.cli.verbs.report import report_command
from tune_tf.cli.verbs.resume import extend, resume
from tune_tf.cli.verbs.retrain import retrain
from tune_tf.cli.verbs.run import run
from tune_tf.cli.verbs.scale import scale
from tune_tf.cli.verbs.show import show
from tune_tf.cli.verbs.simulate import simulate_command
from tune_tf.cli.verbs.status import status
from tune_tf.cli.verbs.stop import stop
from tune_tf.cli.verbs.sync import close, sync
from tune_tf.cli.verbs.trials import trials
from tune_tf.version import __version__

app = typer.Typer(
    name="tune-tf",
    help="Hyperparameter search over TensorFlow/Keras models with Ray Tune, Optuna and MLflow.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    epilog="Exit codes: 0 ended, 1 no trial completed, 2 invalid settings, 130 interrupted.",
)
app.command()(init)
app.command()(plan)
app.command()(run)
app.command()(stop)
app.command()(resume)
app.command()(extend)
app.command("list")(list_command)
app.command()(status)
app.command()(trials)
app.command()(show)
app.command()(logs)
app.command()(best)
app.command("compare")(compare_command)
app.command("report")(report_command)
app.command()(sync)
app.command()(close)
app.command("simulate")(simulate_command)
app.command()(scale)
app.command()(export)
app.command()(promote)
app.command()(retrain)
app.command()(schema)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    """Hyperparameter search over TensorFlow/Keras models with Ray Tune, Optuna and MLflow."""


def main() -> None:
    """Run the command line."""
    keep_ray_local(os.environ, sys.argv[1:])
    with exit_on_errors():
        app()
