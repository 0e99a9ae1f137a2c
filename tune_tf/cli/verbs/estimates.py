"""``tune-tf plan`` and ``scale``: what a sweep will take, and how its workload scales."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tune_tf.cli import options
from tune_tf.cli.console import (
    borderless_table,
    bullet_list,
    make_console,
    measurement_progress,
    print_json,
)
from tune_tf.config import SweepConfig
from tune_tf.forecast import Forecast, Range, write_forecast
from tune_tf.forecast.actuals import range_text, seconds_text
from tune_tf.formatting import bytes_text

if TYPE_CHECKING:
    from tune_tf.estimate.scaling import Scaling, ScalingFiles

_WIDE = 112  # terminal columns for all numbers


def plan(
    file: options.FileArgument,
    overrides: options.OverridesArgument = None,
    settings: options.SettingsOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Forecast what a sweep will take: memory, time, epochs and disk, each with its uncertainty.

    Checks the file, trains a few batches of the smallest, the largest and two random models as the
    sweep would, and refuses what cannot work. A later `run` of the same
    settings compares the forecast with the actual values.

    Example: `tune-tf plan sweep.yaml`
    """
    config = options.read_config(file, overrides, settings)
    forecast, path = print_and_save_forecast(config, file.parent.absolute(), quiet=as_json)
    if as_json:
        print_json({**asdict(forecast), "path": str(path)})


def print_and_save_forecast(
    config: SweepConfig, base_dir: Path, *, quiet: bool
) -> tuple[Forecast, Path]:
    """Forecast a sweep, print the forecast and save it for a run of the same settings."""
    from tune_tf.estimate.planning import forecast_sweep

    with measurement_progress(make_console(stderr=True, quiet=quiet)) as on_progress:
        forecast = forecast_sweep(config, base_dir=base_dir, on_progress=on_progress)
    path = write_forecast(forecast, config)
    if not quiet:
        console = make_console()
        print_forecast(forecast, console)
        console.print(f"\nSaved for the next run with these settings: {path}", soft_wrap=True)
    return forecast, path


def print_forecast(forecast: Forecast, console: Console) -> None:
    """Print a forecast as tables."""
    title = f": what it will take, on {forecast.machine}"
    console.print(Text.assemble((forecast.name, "bold"), title))
    console.print(_models(forecast))
    console.print()
    console.print(_totals(forecast))
    if forecast.frozen_layers:
        console.print(Text(f"\nFrozen layers: {forecast.frozen_layers}"), soft_wrap=True)
    console.print("\nWhere the time goes", style="bold")
    phases = Table.grid(padding=(0, 2, 0, 2))
    for phase, seconds in forecast.phases.items():
        phases.add_row(phase, range_text(seconds, seconds_text))
    console.print(phases)
    console.print("\nAssumptions", style="bold dim")
    console.print(bullet_list(forecast.assumptions), style="dim")
    for warning in forecast.warnings:
        console.print(Text(f"Warning: {warning}", style="yellow"), soft_wrap=True)


def _models(forecast: Forecast) -> Table:
    headers = [
        "model",
        "parameters",
        "initial memory",
        "checkpoint",
        "seconds per epoch",
        "first epoch",
    ]
    has_gpus = any(model.gpu_memory_bytes is not None for model in forecast.models)
    if has_gpus:
        headers.insert(3, "GPU memory")
    table = borderless_table(*headers, right=headers[1:])
    for model in forecast.models:
        cells = [
            model.label,
            f"{model.num_parameters:,}",
            _memory_text(model.memory_bytes),
            bytes_text(model.checkpoint_bytes),
            range_text(model.epoch_s, "{:.3g}".format),
            f"+ {model.trace_s:.1f} s",
        ]
        if has_gpus:
            cells.insert(3, _memory_text(model.gpu_memory_bytes))
        table.add_row(*cells)
    return table


def _memory_text(num_bytes: int | None) -> str:
    return "-" if num_bytes is None else bytes_text(num_bytes)


def _totals(forecast: Forecast) -> Table:
    count, hours = "{:,.0f}".format, "{:.2g}".format
    ranges = ("likely", "from", "to")
    table = borderless_table("the sweep", *ranges, right=ranges)

    def add(label: str, value: Range, to_text: Callable[[float], str]) -> None:
        table.add_row(label, *(to_text(each) for each in (value.likely, value.low, value.high)))

    add("wall time", forecast.wall_s, seconds_text)
    add(f"trials, {forecast.num_at_once} at a time", forecast.trials, count)
    add("epochs of all trials", forecast.epochs, count)
    add("seconds per epoch", forecast.epoch_s, "{:.3g}".format)
    add("parameters per model", forecast.num_parameters, count)
    add("peak memory per trial", forecast.memory_bytes, bytes_text)
    if forecast.gpu_memory_bytes is not None:
        add("GPU memory per trial", forecast.gpu_memory_bytes, bytes_text)
    if forecast.frozen_bytes is not None:
        add("outputs of frozen layers", forecast.frozen_bytes, bytes_text)
    add("CPU-hours reserved", forecast.cpu_hours, hours)
    if forecast.gpus:
        add("GPU-hours reserved", forecast.gpu_hours, hours)
    add("disk: the sweep's folder", forecast.disk_bytes, bytes_text)
    add("disk: MLflow", forecast.mlflow_bytes, bytes_text)
    table.add_row("trials that fit in free memory", f"{forecast.num_fitting_memory:,}", "", "")
    return table


def scale(
    file: options.FileArgument,
    overrides: options.OverridesArgument = None,
    settings: options.SettingsOption = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Measure briefly, and only the extremes.")
    ] = False,
    max_devices: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of devices; default: all.")
    ] = None,
    profile: Annotated[
        bool, typer.Option("--profile", help="Record a TensorFlow profile of a few batches.")
    ] = False,
    address: options.AddressOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Measure how a workload scales over devices, batch sizes and data.

    Trains the config in the middle of the search space for a few seconds at a time, reports where
    more devices stop paying off, and recommends a `parallelism:`.

    Example: `tune-tf scale sweep.yaml`
    """
    config = options.read_config(file, overrides, settings)
    from tune_tf.estimate.scaling import scale_workload, write_scaling

    with measurement_progress(make_console(stderr=True, quiet=as_json)) as on_progress:
        scaling = scale_workload(
            config,
            base_dir=file.parent.absolute(),
            quick=quick,
            max_devices=max_devices,
            profile=profile,
            on_progress=on_progress,
        )
        on_progress("writing", 1.0)
        files = write_scaling(scaling, config)
    if as_json:
        data = {"path": str(files.folder), "mlflow_run_id": files.mlflow_run_id}
        print_json({**scaling.to_dict(), **data})
    else:
        _print_scaling(scaling, files, make_console())


def _print_scaling(scaling: "Scaling", files: "ScalingFiles", console: Console) -> None:
    from tune_tf.estimate.scaling.scaling_report import HEADERS, OPTIONAL_HEADERS, table_of

    where = f" on {scaling.machine}, {scaling.effort.rounds} rounds"
    console.print(Text.assemble((f"How {scaling.name} scales", "bold"), where))
    columns = [
        number
        for number, header in enumerate(HEADERS)
        if console.width >= _WIDE or header not in OPTIONAL_HEADERS
    ]
    table = borderless_table(*(HEADERS[number] for number in columns), right=HEADERS[1:])
    errors: list[tuple[str, str]] = []
    for title, rows in table_of(scaling.measurements):
        table.add_row(Text(title, style="bold"))
        for row in rows:
            cells = [f"  {row.cells[0]}", *row.cells[1:]]
            style = "dim" if row.error else "bold" if row.is_reference else None
            table.add_row(*(cells[number] for number in columns), style=style)
            if row.error:
                errors.append((row.cells[0], row.error))
    console.print(table)
    for name, error in errors:
        console.print(Text(f"{name}: not measured: {error}", style="red"))
    console.print("\nAdvice", style="bold")
    console.print(bullet_list(scaling.advice.sentences))
    console.print("\nFor the sweep file", style="bold")
    console.print(Padding(Text(scaling.advice.settings, style="cyan"), (0, 0, 0, 2)))
    console.print("\nMethod", style="bold dim")
    console.print(bullet_list(scaling.how), style="dim")
    console.print(Text(f"\nNumbers: {files.folder / 'scale.json'}"), soft_wrap=True)
    if scaling.profile:
        console.print(
            Text(
                "Profile: pip install tensorboard tensorboard-plugin-profile; "
                f"tensorboard --logdir {files.folder / 'profile'}"
            ),
            soft_wrap=True,
        )
    if files.mlflow_run_id is not None:
        console.print(Text(f"MLflow run: {files.mlflow_run_id}"), soft_wrap=True)
