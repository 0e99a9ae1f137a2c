"""Draft of a sweep on NumPy arrays."""

from pathlib import Path

from tune_tf.scaffold.draft import DENSE_SPACE, SHARES, Draft, Line, path_line, sweep_name
from tune_tf.workloads.arrays import ArrayProperties, ArraysModel

ARRAY_SUFFIXES = (".npz",)

_VALIDATION_SHARE = Line("validation_share", "0.2", "of the rows, if the file does not split them")
_SHARES = (_VALIDATION_SHARE, SHARES[1])


def arrays_draft(path: Path, path_text: str) -> Draft:
    """Return the draft for arrays in an .npz file.

    Raises:
        WorkloadError: The arrays are invalid.
    """
    workload = ArraysModel(path=str(path))
    properties = workload.properties
    return Draft(
        name=sweep_name(path.stem),
        description=f"A network on the rows of {path.name}, each of shape "
        f"{list(properties.shape)}.",
        workload="tune_tf.workloads.arrays:ArraysModel",
        data=(path_line("path", path_text), _task_line(properties), *_SHARES),
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
