"""``sweep.py trials``: list the trials of a sweep."""

from typing import TYPE_CHECKING, Annotated

import typer

from tune_tf.cli.options import STORAGE_PATH, JsonOption, StoragePathOption, SweepArgument

if TYPE_CHECKING:
    from tune_tf.inspection import TrialRows


def trials(
    sweep: SweepArgument,
    sort: Annotated[
        str,
        typer.Option(
            metavar="FIELD",
            help="A metric (objectives: best first), a parameter, number, began, "
            "iterations, trained_s, outcome ...",
        ),
    ] = "number",
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD=VALUE",
            help="Filter; = != < <= > >=. Repeatable: all must hold.",
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Maximum number of rows.")] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print all fields as CSV.")] = False,
    storage_path: StoragePathOption = STORAGE_PATH,
    as_json: JsonOption = False,
) -> None:
    """List the trials of a sweep, filtered and sorted, as a table, CSV or JSON.

    Example: `sweep.py trials digits-cnn --where outcome=completed --sort val_accuracy --limit 10`
    """
    from tune_tf.cli.terminal.console import print_json
    from tune_tf.inspection import SweepView, TrialRows

    all_rows = TrialRows.of(SweepView.open(sweep, storage_path))
    rows = all_rows.where(where or []).sorted(sort).limited(limit)
    if as_json:
        print_json(rows.rows)
    elif as_csv:
        typer.echo(rows.to_csv(), nl=False)
    else:
        _print(rows, len(all_rows.rows))


def _print(rows: "TrialRows", num_all: int) -> None:
    from rich.table import Table
    from rich.text import Text

    from tune_tf.cli.terminal.console import make_console
    from tune_tf.cli.terminal.states import state_text
    from tune_tf.formatting import duration, value_text

    config = rows.sweep.config
    metrics = [objective.metric for objective in config.objectives]
    paths = [name for name in rows.fields if name.startswith("config/")]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    headers = ("trial", "id", "outcome", *metrics, "iterations", "trained", "began")
    for header in (*headers, *(path.removeprefix("config/") for path in paths)):
        table.add_column(header, no_wrap=True)
    for row in rows.rows:
        table.add_row(
            str(row["number"]),
            row["trial_id"],
            state_text(row["outcome"]),
            *(value_text(row[metric]) if metric in row else "-" for metric in metrics),
            str(row["iterations"]),
            duration(row["trained_s"]) if row["iterations"] else "-",
            row.get("began", "-"),
            *(Text(value_text(row[path], 24)) if path in row else "-" for path in paths),
        )
    console = make_console()
    console.print(table)
    if len(rows.rows) < num_all:
        console.print(f"{len(rows.rows)} of {num_all} trials", style="dim")
