"""``sweep.py scale``: measure how a workload scales."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from tune_tf.cli.console import borderless_table, bullet_list, measurement_progress, print_json
from tune_tf.cli.options import (
    AddressOption,
    FileArgument,
    JsonOption,
    OverridesArgument,
    SettingsOption,
    read_config,
)

if TYPE_CHECKING:
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
    config = read_config(file, overrides, settings)
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
        print_json({**scaling.to_dict(), **data})
    else:
        _print(scaling, kept, Console())


def _print(scaling: "Scaling", kept: "ScalingFiles", console: Console) -> None:
    from tune_tf.estimate.scaling.table import HEADERS, NARROW, table_of

    console.print(
        f"[bold]How {scaling.name} scales[/] on {scaling.machine}, {scaling.effort.rounds} rounds",
        highlight=False,
    )
    columns = [
        number
        for number, header in enumerate(HEADERS)
        if console.width >= _WIDE or header not in NARROW
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
    console.print("\n[bold]Advice[/]")
    console.print(bullet_list(scaling.advice.sentences))
    console.print("\n[bold]For the sweep file[/]")
    console.print(Padding(Text(scaling.advice.settings, style="cyan"), (0, 0, 0, 2)))
    console.print("\n[bold]Method[/]", style="dim")
    console.print(bullet_list(scaling.how), style="dim")
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
