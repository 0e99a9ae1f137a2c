"""Arguments and options that several verbs take."""

from pathlib import Path
from typing import Annotated

import typer

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
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print the result as JSON and nothing else.")
]

STORAGE_PATH = Path("sweeps")
"""Where sweeps are looked for if nothing else is said."""
