"""``sweep.py plan``: forecast what a sweep will take."""

from dataclasses import asdict
from typing import TYPE_CHECKING

from tune_tf.cli.options import FileArgument, JsonOption, OverridesArgument, SettingsOption

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from rich.console import Console
    from rich.table import Table

    from tune_tf.config import SweepConfig
    from tune_tf.forecast import Forecast, ModelForecast, Range


def plan(
    file: FileArgument,
    overrides: OverridesArgument = None,
    settings: SettingsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Forecast what a sweep will take: memory, time, epochs and disk, each with its uncertainty.

    Checks the file, trains a few batches of the smallest, the largest and two random models as the
    sweep would, simulates its scheduler, and refuses what cannot work. A later `run` of the same
    settings compares the forecast with the actual values.

    Example: `sweep.py plan search_spaces/digits_cnn.yaml`
    """
    from tune_tf.config import SweepConfig

    config = SweepConfig.from_yaml(file, [*(settings or []), *(overrides or [])])
    forecast, path = print_and_save_forecast(config, file.parent.absolute(), quiet=as_json)
    if as_json:
        from tune_tf.cli.terminal.console import print_json

        print_json({**asdict(forecast), "path": str(path)})


def print_and_save_forecast(
    config: "SweepConfig", base_dir: "Path", *, quiet: bool
) -> "tuple[Forecast, Path]":
    """Forecast a sweep, print the forecast and save it for a run of the same settings.

    Args:
        config: The sweep's settings.
        base_dir: What the workload's path is relative to.
        quiet: Whether to print nothing.

    Returns:
        The forecast, and the file that holds it.
    """
    from rich.console import Console

    from tune_tf.cli.terminal.console import make_console, measurement_progress
    from tune_tf.estimate.planning import forecast_sweep
    from tune_tf.forecast import write_forecast

    with measurement_progress(Console(stderr=True, quiet=quiet)) as tell:
        forecast = forecast_sweep(config, base_dir=base_dir, on_progress=tell)
    path = write_forecast(forecast, config)
    if not quiet:
        console = make_console()
        print_forecast(forecast, console)
        console.print(f"\nSaved for the next run with these settings: {path}", soft_wrap=True)
    return forecast, path


def print_forecast(forecast: "Forecast", console: "Console") -> None:
    """Print a forecast as tables."""
    from rich.text import Text

    console.print(f"[bold]{forecast.name}[/]: what it will take, on {forecast.machine}")
    console.print(_models(forecast))
    console.print()
    console.print(_totals(forecast))
    console.print("\n[bold]Where the time goes[/]")
    console.print(_phases(forecast))
    console.print("\n[bold]Assumptions[/]", style="dim")
    console.print(_list(forecast.assumptions), style="dim")
    for warning in forecast.warnings:
        console.print(Text(f"Warning: {warning}", style="yellow"), soft_wrap=True)


def _models(forecast: "Forecast") -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), title_justify="left")
    has_gpus = any(model.gpu_memory_bytes is not None for model in forecast.models)
    headers = [
        "model",
        "parameters",
        "initial memory",
        "checkpoint",
        "seconds per epoch",
        "first epoch",
    ]
    if has_gpus:
        headers.insert(3, "GPU memory")
    for number, header in enumerate(headers):
        table.add_column(header, justify="right" if number else "left", no_wrap=True)
    for model in forecast.models:
        table.add_row(*_row(model, has_gpus=has_gpus))
    return table


def _row(model: "ModelForecast", *, has_gpus: bool) -> list[str]:
    from tune_tf.forecast.actuals import range_text
    from tune_tf.formatting import bytes_text

    def known(num_bytes: int | None) -> str:
        return "-" if num_bytes is None else bytes_text(num_bytes)

    cells = [
        model.label,
        f"{model.num_parameters:,}",
        known(model.memory_bytes),
        bytes_text(model.checkpoint_bytes),
        range_text(model.epoch_s, lambda seconds: f"{seconds:.3g}"),
        f"+ {model.trace_s:.1f} s",
    ]
    if has_gpus:
        cells.insert(3, known(model.gpu_memory_bytes))
    return cells


def _totals(forecast: "Forecast") -> "Table":
    from rich.table import Table

    from tune_tf.forecast.actuals import seconds_text
    from tune_tf.formatting import bytes_text

    def count(value: float) -> str:
        return f"{value:,.0f}"

    def hours(value: float) -> str:
        return f"{value:.2g}"

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("the sweep", no_wrap=True)
    for header in ("likely", "from", "to"):
        table.add_column(header, justify="right", no_wrap=True)

    def add(what: str, value: "Range", to_text: "Callable[[float], str]") -> None:
        table.add_row(what, *(to_text(each) for each in (value.likely, value.low, value.high)))

    add("wall time", forecast.wall_s, seconds_text)
    add(f"trials, {forecast.num_at_once} at a time", forecast.trials, count)
    add("epochs of all trials", forecast.epochs, count)
    add("seconds per epoch", forecast.epoch_s, lambda value: f"{value:.3g}")
    add("parameters per model", forecast.num_parameters, count)
    add("peak memory per trial", forecast.memory_bytes, bytes_text)
    if forecast.gpu_memory_bytes is not None:
        add("GPU memory per trial", forecast.gpu_memory_bytes, bytes_text)
    add("CPU-hours reserved", forecast.cpu_hours, hours)
    if forecast.gpus:
        add("GPU-hours reserved", forecast.gpu_hours, hours)
    add("disk: the sweep's folder", forecast.disk_bytes, bytes_text)
    add("disk: MLflow", forecast.mlflow_bytes, bytes_text)
    fitting = forecast.num_fitting_memory
    table.add_row("trials that fit in free memory", f"{fitting:,}", "", "")
    return table


def _phases(forecast: "Forecast") -> "Table":
    from rich.table import Table

    from tune_tf.forecast.actuals import range_text, seconds_text

    table = Table.grid(padding=(0, 2, 0, 2))
    for what, seconds in forecast.phases.items():
        table.add_row(what, range_text(seconds, seconds_text))
    return table


def _list(sentences: "Sequence[str]") -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 1, 0, 2))
    for sentence in sentences:
        table.add_row("-", Text(sentence))
    return table
