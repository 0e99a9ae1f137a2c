"""``tune-tf plan`` and ``scale``: what a sweep takes at most, and how its workload scales."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import psutil
import typer

from tune_tf.cli import options
from tune_tf.cli.console import (
    borderless_table,
    make_console,
    named_values,
    print_json,
)
from tune_tf.config import SweepConfig
from tune_tf.formatting import bytes_text, counted, duration
from tune_tf.measure.extreme_configs import config_text

if TYPE_CHECKING:
    from tune_tf.measure.scaling import Scaling
    from tune_tf.measure.sweep_costs import SweepCosts


def plan(
    file: options.FileArgument,
    overrides: options.OverridesArgument = None,
    as_json: options.JsonOption = False,
) -> None:
    """Measure the smallest and the largest model of a sweep, and bound what the sweep takes.

    Trains a trial of each for two epochs or more: parameters, memory and seconds of an epoch. The
    bounds of time, epochs, memory and disk hold if no trial stops early, and none fails.

    Example: `tune-tf plan sweep.yaml`
    """
    config = SweepConfig.from_yaml(file, overrides or ())
    from tune_tf.measure.sweep_costs import measure_sweep

    with make_console(stderr=True, quiet=as_json).status("measuring models"):
        costs = measure_sweep(config, base_dir=file.parent.absolute())
    if as_json:
        print_json(asdict(costs))
    else:
        _print_costs(costs)


def scale(
    file: options.FileArgument,
    overrides: options.OverridesArgument = None,
    max_devices: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of devices; default: all.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Write a plot of the rows a second to this HTML file.")
    ] = None,
    as_json: options.JsonOption = False,
) -> None:
    """Measure how a workload scales over devices and batch sizes.

    Trains the config in the middle of the search space for a few seconds at a time, and says in
    one line what pays off.

    Example: `tune-tf scale sweep.yaml --plot scale.html`
    """
    config = SweepConfig.from_yaml(file, overrides or ())
    from tune_tf.measure.scaling import scale_workload

    with make_console(stderr=True, quiet=as_json).status("measuring, line by line"):
        scaling = scale_workload(config, base_dir=file.parent.absolute(), max_devices=max_devices)
    if plot is not None:
        _write_plot(scaling, config.name, plot)
    if as_json:
        print_json(asdict(scaling))
    else:
        _print_scaling(scaling)


def _print_costs(costs: "SweepCosts") -> None:
    console = make_console()
    headers = ["model", "parameters", "memory", "GPU", "epoch", "start", "checkpoint", "at once"]
    table = borderless_table(*headers, right=headers[1:], wrap=headers[:1])
    for model in costs.models:
        each = model.costs
        table.add_row(
            model.label,
            f"{model.num_parameters:,}",
            _memory_text(each.memory_bytes),
            _memory_text(each.gpu_memory_bytes),
            f"{each.epoch_s:.3g} s",
            f"{each.start_s:.1f} s",
            bytes_text(each.checkpoint_bytes),
            str(model.num_at_once),
        )
    console.print(table)
    console.print(named_values({it.label: config_text(it.config) for it in costs.models}))
    console.print("\nThe sweep, at most (if no trial fails and starts again)", style="bold")
    bounds = {
        "epochs": f"{costs.epochs:,}",
        "time": f"{duration(costs.time_s)}, {counted(costs.num_at_once, 'trial')} at once",
        "memory": f"{_memory_text(costs.memory_bytes)}; free now: "
        f"{bytes_text(psutil.virtual_memory().available)}",
        "disk": f"{bytes_text(costs.disk_bytes)} of checkpoints while it runs, "
        f"{bytes_text(costs.end_disk_bytes)} at its end",
    }
    console.print(named_values(bounds))


def _print_scaling(scaling: "Scaling") -> None:
    console = make_console()
    headers = ("", "devices", "batch", "rows/s", "speed-up", "efficiency", "memory")
    table = borderless_table(*headers, right=headers[1:])
    for row in scaling.rows:
        table.add_row(
            row.what,
            str(row.devices),
            f"{row.batch_size:,}",
            f"{row.rows_per_s:,.0f}",
            f"{row.speed_up:.2f}",
            f"{row.efficiency:.0%}" if row.devices > 1 else "",
            _memory_text(row.memory_bytes),
        )
    console.print(table)
    for what, cause in scaling.failures.items():
        console.print(f"not measured: {what}: {cause}", style="red", soft_wrap=True)
    console.print(named_values({"config": config_text(scaling.config)}))
    console.print(f"\n{scaling.advice}")


def _memory_text(num_bytes: float | None) -> str:
    return "-" if num_bytes is None else bytes_text(num_bytes)


def _write_plot(scaling: "Scaling", name: str, path: Path) -> None:
    """Draw the rows a second of all candidates as bars, with the speed-up on each."""
    from plotly.graph_objects import Bar, Figure

    rows = scaling.rows
    bars = Bar(
        x=[row.what for row in rows],
        y=[row.rows_per_s for row in rows],
        text=[f"{row.speed_up:.2f} x" for row in rows],
    )
    figure = Figure(bars)
    figure.update_layout(title=f"How {name} scales", yaxis_title="training rows a second")
    figure.write_html(path)
