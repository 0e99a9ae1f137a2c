"""``sweep.py compare``: compare sweeps."""

from typing import TYPE_CHECKING, Annotated

import typer

from tune_tf.cli.options import STORAGE_PATH, JsonOption, StoragePathOption

if TYPE_CHECKING:
    from rich.table import Table

    from tune_tf.inspection import Comparison


def compare_command(
    sweeps: Annotated[
        list[str], typer.Argument(metavar="SWEEP SWEEP...", help="Folders, ids or names.")
    ],
    storage_path: StoragePathOption = STORAGE_PATH,
    as_json: JsonOption = False,
) -> None:
    """Compare sweeps with the same objective: cost, best value and best config.

    Example: `sweep.py compare digits-cnn digits-mlp`
    """
    from tune_tf.cli.terminal.console import make_console, print_json
    from tune_tf.inspection import compare_sweeps

    comparison = compare_sweeps(sweeps, storage_path=storage_path)
    if as_json:
        best = comparison.best
        print_json(
            {
                "best": best.sweep_id if best else None,
                "sweeps": [sweep.to_dict() for sweep in comparison.sweeps],
                "best_configs": comparison.best_configs,
            }
        )
    else:
        make_console().print(_table(comparison))


def _table(comparison: "Comparison") -> "Table":
    from rich.table import Table
    from rich.text import Text

    from tune_tf.cli.terminal.states import counted_states, state_text
    from tune_tf.formatting import duration, value_text

    sweeps = comparison.sweeps
    table = Table()
    for header in ("", *(sweep.sweep_id for sweep in sweeps)):
        table.add_column(Text(header), overflow="fold")
    objective = comparison.objective
    table.add_row(
        f"best {objective.metric}",
        *(
            Text(
                "-" if sweep.best_value is None else value_text(sweep.best_value),
                style="bold green" if sweep is comparison.best else "",
            )
            for sweep in sweeps
        ),
    )
    table.add_row("by trial", *(str(it.best.number) if it.best else "-" for it in sweeps))
    table.add_row("state", *(state_text(sweep.state.value) for sweep in sweeps))
    table.add_row("trials", *(counted_states(sweep.counts) for sweep in sweeps))
    table.add_row("iterations", *(f"{sweep.num_iterations:,}" for sweep in sweeps))
    table.add_row("duration", *(duration(sweep.worked_s) for sweep in sweeps))
    searched = (f"{it.config.searcher.sampler}, {it.config.scheduler.name}" for it in sweeps)
    table.add_row("search", *searched)
    table.add_section()
    for path, values in comparison.best_configs.items():
        table.add_row(Text(path), *(Text("-" if it is None else value_text(it)) for it in values))
    return table
