"""The command line: verbs are thin layers over Python functions."""

import logging
import os
import shutil

import typer
import wrapt

from tune_tf.cli.console import WarningPrinter, exit_on_errors, make_console
from tune_tf.cli.options import keep_ray_local
from tune_tf.cli.signals import interrupt_on_signals
from tune_tf.cli.verbs.init import init
from tune_tf.cli.verbs.measure import plan, scale
from tune_tf.cli.verbs.models import export, promote, retrain
from tune_tf.cli.verbs.resume import extend, resume, sync
from tune_tf.cli.verbs.run import run, stop
from tune_tf.cli.verbs.sweeps import report, status
from tune_tf.cli.verbs.trials import logs, show, trials
from tune_tf.cli.verbs.verify import verify
from tune_tf.version import __version__

app = typer.Typer(
    name="tune-tf",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    epilog="Exit codes: 0 ended, 1 no trial completed, 2 invalid settings, 130 interrupted.",
)
for _verb in (
    *(init, plan, run, stop, resume, extend),
    *(status, trials, show, logs, report, sync, scale),
    *(export, promote, retrain, verify),
):
    app.command()(_verb)


def _version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def main_options(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    """Hyperparameter search over TensorFlow/Keras models with Ray Tune, Optuna and MLflow."""


def main() -> None:
    """Run the command line."""
    keep_ray_local(os.environ)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # TensorFlow's notes on this machine
    logging.lastResort = WarningPrinter(make_console(stderr=True))
    _leave_gpus_to_trials()
    with exit_on_errors(), interrupt_on_signals():
        app()


def _leave_gpus_to_trials() -> None:
    """Hide GPUs from TensorFlow in this process, which may build models but trains none.

    TensorFlow takes memory of each GPU that it sees, wherever its operations run. Ray counts the
    GPUs by ``CUDA_VISIBLE_DEVICES``, so that stays as it is.
    """
    if shutil.which("nvidia-smi"):
        wrapt.when_imported("tensorflow")(lambda tf: tf.config.set_visible_devices([], "GPU"))
