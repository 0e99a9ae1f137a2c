"""Arguments and options that several verbs take."""

from pathlib import Path
from typing import Annotated

import typer

SweepArgument = Annotated[
    str, typer.Argument(help="The sweep's folder, id, or name for its latest.")
]
StoragePathOption = Annotated[Path, typer.Option(help="Where sweeps are looked for by id or name.")]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print the result as JSON and nothing else.")
]

STORAGE_PATH = Path("sweeps")
"""Where sweeps are looked for if nothing else is said."""
