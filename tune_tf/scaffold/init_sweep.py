"""Generator of a sweep file, and on request a workload, for the user's data."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tune_tf.atomic_files import write_atomically
from tune_tf.config import SCHEMA_FILE, SweepConfig, schema_text
from tune_tf.errors import InvalidSettingsError, did_you_mean
from tune_tf.scaffold.arrays import ARRAY_SUFFIXES, arrays_draft
from tune_tf.scaffold.draft import DENSE_SPACE, Draft, Line, sweep_text
from tune_tf.scaffold.images import images_draft
from tune_tf.scaffold.table import table_draft
from tune_tf.sweep.plan import SweepPlan, plan_sweep
from tune_tf.workloads.table import TABLE_SUFFIXES

_EXAMPLES = Path(__file__).with_name("examples")
_SHORT_NAMES = {"digits": "digits_cnn"}  # of examples

_CLASS = "MyWorkload"  # in the templates

_DIGITS_WORKLOAD = '''\
"""Custom workload: the data and the model of a search. Change both methods."""

import tune_tf
from tune_tf.workloads.head import make_optimizer


class MyWorkload(tune_tf.Workload):
    def load_data(self, config):
        """Return arrays with rows on the first axis; it runs once for all trials of a node."""
        from sklearn.datasets import load_digits  # your own: numpy.load, pandas.read_csv, ...

        x, y = load_digits(return_X_y=True)
        x = (x / 16).astype("float32")
        return tune_tf.Data(
            train=(x[:1200], y[:1200]),
            validation=(x[1200:1500], y[1200:1500]),  # trials are compared by these
            test=(x[1500:], y[1500:]),  # no trial sees these: they are for the final model
        )

    def build_model(self, config):
        """Return a compiled Keras model; config holds a trial's values by name."""
        import keras  # here, so that only trials load TensorFlow

        hidden = keras.layers.Dense(config["width"], activation="relu")
        dropout = keras.layers.Dropout(config["dropout"])
        outputs = keras.layers.Dense(10, activation="softmax")
        model = keras.Sequential([keras.Input((64,)), hidden, dropout, outputs])
        loss = "sparse_categorical_crossentropy"
        model.compile(make_optimizer(config), loss=loss, metrics=["accuracy"])
        return model
'''

_WORKLOAD_ON_DATA = '''\
"""Custom workload: data as {base} reads them, and a custom model."""

from {module} import {base}


class MyWorkload({base}):
    def build_model(self, config):
        """Return a compiled Keras model; config holds a trial's values by name."""
        model = super().build_model(config)  # the ready model, to start with
        # A custom model takes the same inputs:
{inputs}
        # and returns {outputs}; compile it with
        #   loss={loss},
        #   metrics=["{metric}"]. `import keras` here, so that only trials load TensorFlow.
        return model

    # Other methods to override, documented in tune_tf.Workload: load_data, per_example,
    # train_step, callbacks, shuffle, global_batch_size.
'''
_WORKLOAD_FILE = "my_workload.py"


_DIGITS_DRAFT = Draft(
    name="my-sweep",
    description="A search on a custom workload.",
    workload="",
    data=(),
    task="classification",
    space=(
        Line("width", "{choice: [32, 64, 128]}", "config['width'] in the workload"),
        DENSE_SPACE[-1],
    ),
)


def _workload_on(draft: Draft) -> str:
    """Return the text of a workload that extends the ready workload of a draft."""
    module, _, base = draft.workload.partition(":")
    is_classes = draft.task == "classification"
    return _WORKLOAD_ON_DATA.format(
        base=base,
        module=module,
        inputs="\n".join(f"        #   {each}" for each in draft.inputs),
        outputs="logits of shape [rows, classes]" if is_classes else "numbers of shape [rows, 1]",
        loss=(
            "keras.losses.SparseCategoricalCrossentropy(from_logits=True)"
            if is_classes
            else '"mse"'
        ),
        metric="accuracy" if is_classes else "mae",
    )


@dataclass(frozen=True)
class InitResult:
    """Generated files and their checked plan; the task is guessed from the data."""

    path: Path
    files: tuple[Path, ...]
    plan: SweepPlan
    task: str


def init_sweep(
    data: str | Path | None = None,
    output: str | Path = "sweep.yaml",
    *,
    target: str | None = None,
    workload: str | Path | None = None,
    force: bool = False,
    read_csv: Mapping[str, Any] | None = None,
) -> InitResult:
    """Write a commented sweep file that is ready to run, and check it as a dry run does.

    A missing JSON schema, which the first line of the sweep file names, is written beside it.

    Args:
        data: Table, folder with a subfolder of images per class, or arrays (``.npz``);
            None for a custom workload on scikit-learn's digits.
        output: Path of the sweep file.
        target: Table column to predict.
        workload: Python file for a custom workload, relative to the sweep file's folder.
        force: Whether to replace existing files.
        read_csv: Arguments of ``pandas.read_csv`` for a table in a text file.

    Raises:
        InvalidSettingsError: A file exists, or the target is unclear.
        WorkloadError: The data are invalid; the message names file, column or row.
    """
    output = Path(output)
    if data is None and target is not None:
        raise InvalidSettingsError(f"--target {target} needs DATA to find it in")
    file = Path(workload or _WORKLOAD_FILE) if data is None or workload is not None else None
    if file is not None and file.suffix != ".py":
        raise InvalidSettingsError(f"a workload is written to a .py file, not to {file}")
    paths = [output] if file is None else [output, output.parent / file]
    present = [str(path) for path in paths if path.exists()]
    if present and not force:
        raise InvalidSettingsError(
            f"{' and '.join(present)} already exist{'s' if len(present) == 1 else ''}: name "
            "another --output, or overwrite with --force"
        )
    draft = _DIGITS_DRAFT
    if data is not None:
        draft = _draft_of(Path(data), target, output.parent, read_csv or {})
    texts: dict[Path, str] = {}
    if file is not None:
        texts[output.parent / file] = _DIGITS_WORKLOAD if data is None else _workload_on(draft)
        draft = replace(draft, workload=f"{file.as_posix()}:{_CLASS}")
    texts = {output: sweep_text(draft, output.name), **texts}
    schema = output.with_name(SCHEMA_FILE)
    if force or not schema.exists():
        texts[schema] = schema_text()
    _write(texts)
    plan = plan_sweep(SweepConfig.from_yaml(output), base_dir=output.parent.absolute())
    return InitResult(output, tuple(texts), plan, draft.task)


def _draft_of(data: Path, target: str | None, base_dir: Path, read_csv: Mapping[str, Any]) -> Draft:
    """Return the draft for data, by file type.

    Raises:
        InvalidSettingsError: The data are missing, or no ready workload supports their type.
    """
    if not data.exists():
        others = [each.name for each in data.parent.iterdir()] if data.parent.is_dir() else []
        raise InvalidSettingsError(
            f"there is no file or folder {data}{did_you_mean(data.name, others)}"
        )
    text = _relative(data, base_dir)
    suffix = Path(data.name.lower().removesuffix(".gz")).suffix
    if suffix in TABLE_SUFFIXES:
        return table_draft(data, target, text, read_csv)
    if target is not None:
        raise InvalidSettingsError(f"--target is for tables, and {data} is none: leave it out")
    if data.is_dir():
        return images_draft(data, text)
    if suffix in ARRAY_SUFFIXES:
        return arrays_draft(data, text)
    known = ", ".join((*TABLE_SUFFIXES, *ARRAY_SUFFIXES))
    raise InvalidSettingsError(
        f"no ready workload takes {data}: name a file ending in {known}, or a folder with one "
        "folder of images per class; or leave out DATA to write a custom workload"
    )


def _relative(data: Path, base_dir: Path) -> str:
    """Return the path for the sweep file: relative to its folder, unless that is long."""
    path, base = data.absolute(), base_dir.absolute()
    text = Path(os.path.relpath(path, base))
    return path.as_posix() if text.parts[:3] == ("..", "..", "..") else text.as_posix()


def _write(texts: Mapping[Path, str]) -> None:
    for path, text in texts.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, text)
        except OSError as error:
            raise InvalidSettingsError(f"{path} cannot be written: {error.strerror}") from error


def example_names() -> list[str]:
    """Return the names of all ready sweep files."""
    return sorted(path.stem for path in _EXAMPLES.glob("*.yaml"))


def write_example(name: str, output: Path, *, force: bool) -> tuple[Path, ...]:
    """Write a ready sweep file, and the schema that its editor uses; return their paths.

    Raises:
        InvalidSettingsError: There is no such example, or the file exists and not ``force``.
    """
    names = example_names()
    stem = _SHORT_NAMES.get(name, name)
    if stem not in names:
        raise InvalidSettingsError(
            f"there is no example {name!r}{did_you_mean(name, names)}; the examples are "
            f"{', '.join(names)}"
        )
    if output.exists() and not force:
        raise InvalidSettingsError(f"{output} exists: choose another --output, or add --force")
    text = (_EXAMPLES / f"{stem}.yaml").read_text(encoding="utf-8")
    texts = {output: text, output.with_name(SCHEMA_FILE): schema_text()}
    _write(texts)
    return tuple(texts)
