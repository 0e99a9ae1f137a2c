"""Arguments and options shared by several verbs."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

_ADDRESS = "RAY_ADDRESS"


def _connect(context: typer.Context, address: str | None) -> str | None:
    """Make Ray connect to this cluster, not that of the sweep file, while the verb runs."""
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
    str,
    typer.Argument(help="The sweep's folder or id, or a name for the latest sweep of that name."),
]
TrialOption = Annotated[
    str | None,
    typer.Option(
        help="The trial's number, id, or an unambiguous prefix of its id; default: the best."
    ),
]
TrialArgument = Annotated[
    str, typer.Argument(help="The trial's number, id, or an unambiguous prefix of its id.")
]
StoragePathOption = Annotated[Path, typer.Option(help="Folder to look up sweep ids and names in.")]
FileArgument = Annotated[Path, typer.Argument(help="The sweep file (YAML).")]
OverridesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Settings to override, as with --set."),
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
        help="Ray cluster: auto, host:port, or ray://host:port from outside the cluster.",
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print the result as JSON and nothing else.")
]

STORAGE_PATH = Path("sweeps")
"""Default storage path."""
