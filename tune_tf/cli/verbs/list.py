"""``sweep.py list``: list sweeps."""

from typing import TYPE_CHECKING

from tune_tf.cli.options import STORAGE_PATH, JsonOption, StoragePathOption

if TYPE_CHECKING:
    from tune_tf.inspection import SweepList


def list_command(
    storage_path: StoragePathOption = STORAGE_PATH,
    as_json: JsonOption = False,
) -> None:
    """List the sweeps of a storage path, newest first.

    Shows for each whether it is running, interrupted (`resume` continues it) or ended, how its
    trials ended, and its best value. Reads only the sweeps' folders.

    Example: `sweep.py list --storage-path sweeps`
    """
    from tune_tf.cli.terminal.console import print_json
    from tune_tf.inspection import list_sweeps as read_sweeps

    sweeps = read_sweeps(storage_path)
    if as_json:
        print_json(
            {
                "sweeps": [sweep.to_dict() for sweep in sweeps.sweeps],
                "unreadable": dict(sweeps.unreadable),
            }
        )
    else:
        _print(sweeps)


def _print(sweeps: "SweepList") -> None:
    from rich.table import Table
    from rich.text import Text

    from tune_tf.cli.terminal.console import make_console
    from tune_tf.cli.terminal.states import counted_states, state_text
    from tune_tf.formatting import duration, value_text
    from tune_tf.inspection.trial_rows import local_time

    console = make_console()
    if not sweeps.sweeps and not sweeps.unreadable:
        console.print(f"There are no sweeps in {sweeps.storage_path}.", soft_wrap=True)
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for header in ("sweep", "state", "trials", "best", "began", "duration"):
        table.add_column(header, no_wrap=header != "trials")
    for sweep in sweeps.sweeps:
        best = sweep.best_value
        metric = sweep.config.leading_objective.metric
        table.add_row(
            Text(sweep.sweep_id),
            state_text(sweep.state.value),
            counted_states(sweep.counts),
            "-" if best is None else Text(f"{metric} {value_text(best)}"),
            local_time(sweep.began_s),
            duration(sweep.worked_s),
        )
    console.print(table)
    for name, why in sweeps.unreadable.items():
        console.print(Text(f"{name}: {why}", style="red"), soft_wrap=True)
