"""``sweep.py scale``: measure how a workload scales."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tune_tf.cli.options import (
    AddressOption,
    FileArgument,
    JsonOption,
    OverridesArgument,
    SettingsOption,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from tune_tf.estimate.scaling import Scaling, ScalingFiles

_WIDE = 112  # terminal columns for all numbers


def scale(
    file: FileArgument,
    overrides: OverridesArgument = None,
    settings: SettingsOption = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Measure briefly, and only the extremes.")
    ] = False,
    max_devices: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of devices; default: all.")
    ] = None,
    profile: Annotated[
        bool, typer.Option("--profile", help="Record a TensorFlow profile of a few batches.")
    ] = False,
    address: AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure how a workload scales over devices, batch sizes and data.

    Trains the config in the middle of the search space for a few seconds at a time, reports where
    more devices stop paying off, and recommends a `parallelism:`.

    Example: `sweep.py scale search_spaces/digits_cnn.yaml`
    """
    from tune_tf.config import SweepConfig

    config = SweepConfig.from_yaml(file, [*(settings or []), *(overrides or [])])
    from rich.console import Console

    from tune_tf.cli.terminal.console import measurement_progress
    from tune_tf.estimate.scaling import scale_workload, write_scaling

    with measurement_progress(Console(stderr=True, quiet=as_json)) as tell:
        scaling = scale_workload(
            config,
            base_dir=file.parent.absolute(),
            quick=quick,
            max_devices=max_devices,
            profile=profile,
            on_progress=tell,
        )
        tell("writing", 1.0)
        kept = write_scaling(scaling, config)
    if as_json:
        data = {"path": str(kept.folder), "mlflow_run_id": kept.mlflow_run_id}
        typer.echo(json.dumps({**scaling.to_dict(), **data}, indent=2, default=str))
    else:
        _print(scaling, kept, Console())


def _print(scaling: "Scaling", kept: "ScalingFiles", console: "Console") -> None:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    from tune_tf.estimate.scaling.scaling_report import HEADERS, NARROW, table_of

    console.print(
        f"[bold]How {scaling.name} scales[/] on {scaling.machine}, {scaling.effort.rounds} rounds",
        highlight=False,
    )
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    columns = [
        number
        for number, header in enumerate(HEADERS)
        if console.width >= _WIDE or header not in NARROW
    ]
    for number in columns:
        justify: Literal["left", "right"] = "right" if number else "left"
        table.add_column(HEADERS[number], justify=justify, no_wrap=True)
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
    console.print("\n[bold]Advice[/]")
    console.print(_list(scaling.advice.sentences))
    console.print("\n[bold]For the sweep file[/]")
    console.print(Padding(Text(scaling.advice.settings, style="cyan"), (0, 0, 0, 2)))
    console.print("\n[bold]Method[/]", style="dim")
    console.print(_list(scaling.how), style="dim")
    console.print(Text(f"\nPage and picture: {kept.folder / 'scale.html'}"), soft_wrap=True)
    if scaling.profile:
        console.print(
            Text(
                "Profile: pip install tensorboard tensorboard-plugin-profile; "
                f"tensorboard --logdir {kept.folder / 'profile'}"
            ),
            soft_wrap=True,
        )
    if kept.mlflow_run_id is not None:
        console.print(Text(f"MLflow run: {kept.mlflow_run_id}"), soft_wrap=True)


def _list(sentences: "Sequence[str]") -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 1, 0, 2))
    for sentence in sentences:
        table.add_row("-", Text(sentence))
    return table
