"""Draft of a sweep on NumPy arrays."""

from pathlib import Path

from tune_tf.errors import InvalidSettingsError, did_you_mean
from tune_tf.scaffold.draft import Draft, Line, scalar, sweep_name
from tune_tf.workloads.array_rows import ArrayProperties
from tune_tf.workloads.arrays import ArraysModel

ARRAY_SUFFIXES = (".npz", ".npy")


def arrays_draft(path: Path, target: str | None, path_text: str) -> Draft:
    """Return the draft for arrays in one .npz file or two .npy files in the same folder.

    The name of the targets' file is by default that of the inputs with ``y`` instead of ``x``.

    Raises:
        InvalidSettingsError: The targets cannot be found.
        WorkloadError: The arrays are invalid.
    """
    if path.suffix.lower() == ".npz":
        if target is not None:
            raise InvalidSettingsError(
                [f"--target is for tables, records and .npy files: {path.name} names its own, y"]
            )
        workload = ArraysModel(path=str(path))
        places = [Line("path", scalar(path_text), "relative to this file's folder")]
    else:
        y = _targets(path, target)
        workload = ArraysModel(x=str(path), y=str(y))
        places = [
            Line("x", scalar(path_text), "relative to this file's folder"),
            Line("y", scalar(str(Path(path_text).with_name(y.name)))),
        ]
    properties = workload.properties
    return Draft(
        name=sweep_name(path.stem),
        about=f"A network on the rows of {path.name}, each of shape {list(properties.shape)}.",
        workload="tune_tf.workloads.arrays:ArraysModel",
        data=(*places, *task_lines(properties), *share_lines()),
        task=properties.head.task,
        space=space_of(properties),
        inputs=(f"x: {properties.dtype} of shape {list(properties.shape)}",),
    )


def task_lines(properties: ArrayProperties) -> tuple[Line, ...]:
    """Return the lines of the sweep file about the task."""
    if properties.head.num_classes is None:
        guessed = "guessed: fractions, or many values; `classification` if these are class numbers"
        return (Line("task", "regression", guessed),)
    guessed = (
        f"guessed: {properties.head.num_classes} different integers; `regression` for quantities"
    )
    return (Line("task", "classification", guessed),)


def share_lines() -> tuple[Line, ...]:
    """Return the lines of the sweep file about the division of rows."""
    return (
        Line("validation_share", "0.2", "of the rows, if the file does not split them"),
        Line("test_share", "0.1", "no trial sees them: they are for the final model"),
    )


def space_of(properties: ArrayProperties) -> tuple[Line, ...]:
    """Return the space besides the optimizer: convolutions for images, else dense layers."""
    is_image = len(properties.shape) in (2, 3)
    return (
        Line("filters", "{choice: [8, 16, 32]}", "of the first convolution")
        if is_image
        else Line("num_layers", "{int: [1, 3]}"),
        Line("width", "{choice: [32, 64, 128]}"),
        Line("dropout", "{quniform: [0.0, 0.5, 0.1]}"),
    )


def _targets(path: Path, target: str | None) -> Path:
    there = sorted(each.name for each in path.parent.glob("*.npy") if each.name != path.name)
    wanted = target or path.name.replace("x", "y", 1).replace("X", "y", 1)
    if wanted in there:
        return path.with_name(wanted)
    text = f"there are {', '.join(there)}" if there else "there is no other .npy file"
    if target is None:
        raise InvalidSettingsError(
            [
                f"which file holds the targets of {path.name}? Pass --target FILE.npy; beside it "
                f"{text}"
            ]
        )
    raise InvalidSettingsError(
        [f"there is no {wanted!r} beside {path}{did_you_mean(wanted, there)}; {text}"]
    )
