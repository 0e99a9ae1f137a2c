"""Arguments and options shared by several verbs, and where Ray listens."""

from collections.abc import MutableMapping
from pathlib import Path
from typing import Annotated

import typer

_LOCAL_VARIABLE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
_LOCAL_ONLY = "0"
_TRIAL = "The trial's number or id; default: the best."


SweepArgument = Annotated[
    str,
    typer.Argument(help="The sweep's folder or id, or a name for the latest sweep of that name."),
]
TrialOption = Annotated[
    str | None,
    typer.Option(help=_TRIAL),
]
TrialArgument = Annotated[
    str | None,
    typer.Argument(help=_TRIAL),
]
StoragePathOption = Annotated[Path, typer.Option(help="Folder to look up sweep ids and names in.")]
FileArgument = Annotated[Path, typer.Argument(help="The sweep file (YAML).")]
OverridesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KEY=VALUE",
        help="Settings to override, such as budget.num_samples=8 space.filters.choice=[16,32]",
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print the result as JSON and nothing else.")
]

STORAGE_PATH = Path("sweeps")


def keep_ray_local(environ: MutableMapping[str, str]) -> None:
    """Make Ray's processes listen on 127.0.0.1 only, unless a cluster is given.

    Ray listens on all interfaces, and whoever reaches it can run code. ``ray.init`` ignores a
    request for 127.0.0.1 except on systems where it stays local by default; the environment
    variable that controls this works everywhere and is read when Ray is imported.
    """
    if not environ.get("RAY_ADDRESS"):
        environ.setdefault(_LOCAL_VARIABLE, _LOCAL_ONLY)


def allow_remote_ray(environ: MutableMapping[str, str], address: str | None) -> None:
    """Undo :func:`keep_ray_local` where a sweep file names a cluster; call before importing Ray."""
    if address and environ.get(_LOCAL_VARIABLE) == _LOCAL_ONLY:
        del environ[_LOCAL_VARIABLE]
