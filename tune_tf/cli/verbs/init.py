"""``tune-tf init``: write a sweep file for your own data."""

from pathlib import Path
from typing import Annotated

import typer

from tune_tf.cli import options
from tune_tf.cli.console import echo, print_json, print_json_or_lines
from tune_tf.config import schema_text


def init(
    data: Annotated[
        Path | None,
        typer.Argument(
            metavar="DATA",
            help="A .csv, .tsv, .parquet or .npz file, or a folder of class folders "
            "with images; without it, a template for your own workload is written.",
        ),
    ] = None,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="The file to write."),
    ] = Path("sweep.yaml"),
    target: Annotated[
        str | None,
        typer.Option(help="Target: a column of a table."),
    ] = None,
    workload: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.py", help="Also write a workload class for these data, to edit."
        ),
    ] = None,
    example: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Write a ready sweep file instead, such as digits."),
    ] = None,
    schema: Annotated[
        bool,
        typer.Option("--schema", help="Print the JSON schema of sweep files."),
    ] = False,
    read_csv: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Argument of pandas.read_csv for a table, such as decimal=, or encoding=cp1252; "
            "repeatable.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
    as_json: options.JsonOption = False,
) -> None:
    """Write a commented sweep file for your own data, ready to run.

    Inspects the data, infers the task, explains it in comments and checks the file as
    `run --dry-run` does. An editor with a YAML language server completes and checks a sweep file
    by the JSON schema beside it. Exit code 2: the data are invalid, or a file exists.

    Example: `tune-tf init customers.csv --target churn --output churn.yaml`
    """
    if schema:
        typer.echo(schema_text(), nl=False)
        return
    from tune_tf.scaffold import init_sweep, write_example

    if example is not None:
        if data is not None:
            raise typer.BadParameter("is given with data: leave one out", param_hint="--example")
        files = [str(path) for path in write_example(example, output, force=force)]
        lines = (f"Wrote {', '.join(files)}", f"Search with: tune-tf run {output}")
        print_json_or_lines({"path": str(output), "files": files}, *lines, as_json=as_json)
        return
    arguments = dict(map(_argument, read_csv or ()))
    written = init_sweep(
        data, output, target=target, workload=workload, force=force, read_csv=arguments
    )
    if as_json:
        summary = {
            "path": str(written.path),
            "files": [str(path) for path in written.files],
            "workload": written.plan.config.workload,
            "task": written.task,
        }
        print_json(summary)
        return
    from tune_tf.cli.sweep_display import print_plan

    echo(f"Wrote {', '.join(str(path) for path in written.files)}")
    print_plan(written.plan, as_json=False)
    echo(f"Search with: tune-tf run {written.path}")


def _argument(text: str) -> tuple[str, str | int]:
    name, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"must be NAME=VALUE, not {text}", param_hint="--read-csv")
    return name, int(value) if value.isdecimal() else value.replace(r"\t", "\t")
