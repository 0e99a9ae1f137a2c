"""``tune-tf run`` and ``stop``: run a sweep, and stop it from elsewhere."""

import contextlib
import logging
import os
import subprocess
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tune_tf.cli import options
from tune_tf.cli.console import exit_on_interrupt, make_console, print_json
from tune_tf.cli.signals import repeat_lost_interrupt
from tune_tf.config import SweepConfig
from tune_tf.errors import InvalidSettingsError
from tune_tf.inspection import SweepView
from tune_tf.results import SweepResult
from tune_tf.space.document import YamlDocument

if TYPE_CHECKING:
    from ray.tune import Callback

_PATIENCE_S = 20.0  # for a batch, once Ray has started

_log = logging.getLogger(__name__)


def run(
    file: options.FileArgument,
    overrides: options.OverridesArgument = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Check everything, train one batch and print the plan."),
    ] = False,
    check: Annotated[
        bool,
        typer.Option(help="Train one batch while Ray starts, and refuse what cannot work."),
    ] = True,
    as_json: options.JsonOption = False,
) -> None:
    """Run a sweep to its end.

    Before the first trial, one batch is trained in a process of its own, as by `--dry-run`: a wrong
    metric, parameter, shape or label is refused, with its line in the file. A batch that takes more
    than 20 s once Ray has started is not waited for.

    Example: `tune-tf run sweep.yaml budget.num_samples=8`
    """
    with exit_on_interrupt("no sweep was begun"), _lines_of(file, overrides or ()):
        config = SweepConfig.from_yaml(file, overrides or ())
        options.allow_remote_ray(os.environ, config.cluster.address)
        from tune_tf.cli.progress import run_in_terminal
        from tune_tf.cli.sweep_display import print_plan
        from tune_tf.sweep import plan_sweep, run_sweep

        base_dir = file.parent.absolute()
        if dry_run:
            from tune_tf.measure.dry_run import check_sweep

            plan = plan_sweep(config, base_dir=base_dir)
            print_plan(plan, check_sweep(plan), as_json=as_json)
            return
        run = partial(run_sweep, config, base_dir=base_dir)
        if check:
            run = partial(_run_checked, config, base_dir)
        run_in_terminal(run, config, as_json=as_json)


@contextlib.contextmanager
def _lines_of(file: Path, overrides: Sequence[str]) -> Iterator[None]:
    """Add the lines of a sweep file to errors in its settings."""
    try:
        yield
    except InvalidSettingsError as error:
        if error.source or not all(each.where for each in error.details):
            raise  # it has its lines, or none
        document = YamlDocument.read(file).overriding(overrides)
        raise InvalidSettingsError(document.locate(error.details), str(file)) from None


def _run_checked(
    config: SweepConfig,
    base_dir: Path,
    callbacks: "Sequence[Callback]",
) -> SweepResult:
    """Run a sweep, after a batch has been trained while Ray starts."""
    from tune_tf.measure.dry_run import dry_run_process
    from tune_tf.sweep import plan_sweep, run_sweep
    from tune_tf.sweep.cluster import cluster, cluster_address

    with contextlib.ExitStack() as stack:
        if cluster_address(config.cluster) is not None:  # it may hold what this machine cannot
            stack.enter_context(cluster(config.cluster, base_dir))
        plan = plan_sweep(config, base_dir=base_dir)
        repeat_lost_interrupt()
        with dry_run_process(plan) as process:
            stack.enter_context(cluster(config.cluster, base_dir))
            repeat_lost_interrupt()
            with contextlib.suppress(subprocess.TimeoutExpired):
                for warning in process.result(_PATIENCE_S):
                    _log.warning(warning)
        return run_sweep(config, base_dir=base_dir, callbacks=callbacks)


def stop(
    sweep: options.SweepArgument,
    trials: Annotated[
        list[str] | None,
        typer.Option("--trial", help="A trial, by number or id; repeatable."),
    ] = None,
    end: Annotated[
        bool, typer.Option("--end", help="End it for good, with report and best model.")
    ] = False,
    storage_path: options.StoragePathOption = options.STORAGE_PATH,
    as_json: options.JsonOption = False,
) -> None:
    """Stop a sweep that runs in another terminal or on another machine, like Ctrl-C there.

    `resume` continues it; with `--end` it ends as if its budget were spent. With `--trial` only
    these trials end, after the next epoch that they report. The request is written to
    the sweep's record. Exit code 2: the sweep is not running, or has no such trial.

    Example: `tune-tf stop digits-cnn --trial 7`
    """
    from tune_tf.cli.sweep_display import print_status
    from tune_tf.sweep.stop import stop_sweep, stop_trials

    if trials and end:
        raise typer.BadParameter(
            "ends the sweep, --trial only trials of it: give one of the two", param_hint="--end"
        )
    console = make_console(quiet=as_json)
    name = SweepView.open(sweep, storage_path).sweep_id
    target = f"trial {', '.join(trials)} of {name}" if trials else name
    console.print(f"asking {target} to stop ...")
    if trials:
        view = stop_trials(sweep, trials, storage_path=storage_path)
    else:
        view = stop_sweep(sweep, storage_path=storage_path, end=end)
    print_status(view, console)
    if as_json:
        print_json(view.to_dict())
