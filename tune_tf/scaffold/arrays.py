"""Draft of a sweep on NumPy arrays."""

from pathlib import Path

from tune_tf.errors import InvalidSettingsError, did_you_mean
from tune_tf.scaffold.draft import DENSE_SPACE, SHARES, Draft, Line, path_line, scalar, sweep_name
from tune_tf.workloads.arrays import ArrayProperties, ArraysModel

ARRAY_SUFFIXES = (".npz", ".npy")

_VALIDATION_SHARE = Line("validation_share", "0.2", "of the rows, if the file does not split them")
_SHARES = (_VALIDATION_SHARE, SHARES[1])


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
                f"--target is for tables and .npy files: {path.name} names its own, y"
            )
        workload = ArraysModel(path=str(path))
        lines = [path_line("path", path_text)]
    else:
        y = _target_file(path, target)
        workload = ArraysModel(x=str(path), y=str(y))
        lines = [
            path_line("x", path_text),
            Line("y", scalar(str(Path(path_text).with_name(y.name)))),
        ]
    properties = workload.properties
    return Draft(
        name=sweep_name(path.stem),
        description=f"A network on the rows of {path.name}, each of shape "
        f"{list(properties.shape)}.",
        workload="tune_tf.workloads.arrays:ArraysModel",
        data=(*lines, _task_line(properties), *_SHARES),
        task=properties.head.task,
        space=_space_of(properties),
        inputs=(f"x: {properties.dtype} of shape {list(properties.shape)}",),
    )


def _task_line(properties: ArrayProperties) -> Line:
    count = properties.head.num_classes
    if count is None:
        comment = "guessed: fractions, or many values; `classification` if these are class numbers"
        return Line("task", "regression", comment)
    comment = f"guessed: {count} different integers; `regression` for quantities"
    return Line("task", "classification", comment)


def _space_of(properties: ArrayProperties) -> tuple[Line, ...]:
    """Return the space besides the optimizer: convolutions for images, else dense layers."""
    is_image = len(properties.shape) in (2, 3)
    filters = Line("filters", "{choice: [8, 16, 32]}", "of the first convolution")
    return (filters, *DENSE_SPACE[1:]) if is_image else DENSE_SPACE


def _target_file(path: Path, target: str | None) -> Path:
    others = sorted(each.name for each in path.parent.glob("*.npy") if each.name != path.name)
    name = target or path.name.replace("x", "y", 1).replace("X", "y", 1)
    if name in others:
        return path.with_name(name)
    text = f"there are {', '.join(others)}" if others else "there is no other .npy file"
    if target is None:
        raise InvalidSettingsError(
            f"which file holds the targets of {path.name}? Pass --target FILE.npy; beside it {text}"
        )
    raise InvalidSettingsError(
        f"there is no {name!r} beside {path}{did_you_mean(name, others)}; {text}"
    )
