"""``sweep.py schema``: the JSON schema of sweep files, for editors."""

import json
from pathlib import Path
from typing import Annotated

import typer

from tune_tf.cli.options import JsonOption


def schema(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file to write it to.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the JSON schema of sweep files, or write it to a file.

    An editor with a YAML language server completes and checks a sweep file whose first line
    names the schema: `# yaml-language-server: $schema=sweep.schema.json`

    Example: `sweep.py schema --output sweep.schema.json`
    """
    from tune_tf.config import schema_text, write_schema

    if output is None:
        typer.echo(schema_text(), nl=False)
        return
    write_schema(output)
    typer.echo(json.dumps({"path": str(output)}) if as_json else f"Wrote {output}")
