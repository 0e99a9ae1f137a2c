"""Arguments and options that several verbs take."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

_ADDRESS = "RAY_ADDRESS"


def _connect(context: typer.Context, address: str | None) -> str | None:
    """Have Ray connect to a cluster, whichever the sweep file names, while the verb runs."""
    if address:
        context.with_resource(_connected_to(address))
    return address


@contextlib.contextmanager
def _connected_to(address: str) -> Iterator[None]:
    before = os.environ.get(_ADDRESS)
    os.environ[_ADDRESS] = address
    try:
        yield
    finally:
        del os.environ[_ADDRESS]
        if before is not None:
            os.environ[_ADDRESS] = before


SweepArgument = Annotated[
    str, typer.Argument(help="The sweep's folder, id, or name for its latest.")
]
TrialOption = Annotated[
    str | None,
    typer.Option(help="The trial's id, its beginning, or its number; the best by default."),
]
TrialArgument = Annotated[
    str, typer.Argument(help="The trial's number, id, or an unambiguous beginning of its id.")
]
StoragePathOption = Annotated[Path, typer.Option(help="Where sweeps are looked for by id or name.")]
FileArgument = Annotated[Path, typer.Argument(help="The sweep file (YAML).")]
OverridesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="More settings.")
]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a setting, e.g. --set budget.num_samples=8 space.filters.choice=[16,32]",
    ),
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        callback=_connect,
        help="Ray cluster: auto, host:port, or ray://host:port from outside of it.",
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print the result as JSON and nothing else.")
]

STORAGE_PATH = Path("sweeps")
"""Where sweeps are looked for if nothing else is said."""
