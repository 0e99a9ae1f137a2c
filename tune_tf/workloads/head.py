"""The last layer of a model, and what it is trained for."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from tune_tf.errors import WorkloadError
from tune_tf.workload import Config
from tune_tf.workloads.data_settings import Task

_MAX_CLASSES_OF_NUMBERS = 20  # whole numbers with more values are amounts rather than classes
_MAX_LISTED = 5


@dataclass(frozen=True)
class Head:
    """The last layer of a model.

    Args:
        num_classes: Classes to tell apart, at least 2; None where numbers are predicted.
        num_values: Numbers predicted for a row.
        means: Their means over the training rows.
        scales: Their standard deviations over the training rows, none 0.
    """

    num_classes: int | None = None
    num_values: int = 1
    means: tuple[float, ...] = (0.0,)
    scales: tuple[float, ...] = (1.0,)

    @classmethod
    def of_numbers(cls, y: Any) -> "Head":
        """Return the head that predicts numbers.

        Args:
            y: Of the training rows, shape ``[rows]`` or ``[rows, numbers]``.
        """
        values = np.asarray(y, np.float64).reshape(len(y), -1)
        scales = values.std(axis=0)
        scales[scales == 0] = 1
        return cls(None, values.shape[1], _floats(values.mean(axis=0)), _floats(scales))

    @property
    def task(self) -> str:
        """Name of what is learnt."""
        return "regression" if self.num_classes is None else "classification"

    def compiled(self, inputs: Any, features: Any, config: Config) -> Any:
        """Return the compiled model.

        Classes are logits of shape ``[rows, classes]`` with the metric ``accuracy``. Numbers have
        the unit of the target; their loss is the squared error as a share of the target's variance
        and the metric is ``mae``, in the unit of the target.

        Args:
            inputs: Of the model.
            features: What the last layer sees, shape ``[rows, features]``.
            config: The trial's values, for the optimizer.
        """
        import keras

        if self.num_classes is not None:
            model = keras.Model(inputs, keras.layers.Dense(self.num_classes)(features))
            model.compile(
                optimizer=make_optimizer(config),
                loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                metrics=["accuracy"],
            )
            return model
        values = keras.layers.Dense(self.num_values)(features)
        # Back to the unit of the target: a served model needs no statistics beside it.
        values = keras.layers.Normalization(
            mean=np.array(self.means), variance=np.square(self.scales), invert=True
        )(values)
        model = keras.Model(inputs, values)
        model.compile(
            optimizer=make_optimizer(config),
            loss="mse",
            loss_weights=[1 / float(np.mean(np.square(self.scales)))],
            metrics=["mae"],
        )
        return model


def is_classification(y: Any, task: Task) -> bool:
    """Return whether a target holds classes: as told, else whole numbers with few values.

    Args:
        y: Numbers, shape ``[rows, ...]``.
        task: What was told.
    """
    if task != "auto":
        return task == "classification"
    if y.dtype.kind == "b":
        return True
    return y.dtype.kind in "iu" and len(np.unique(y)) <= _MAX_CLASSES_OF_NUMBERS


def class_numbers(y: Any, num_classes: int | None, where: str) -> tuple[Any, int]:
    """Return classes as int32 of shape ``[rows]``, and how many there are.

    Args:
        y: Class numbers from 0, shape ``[rows]`` or ``[rows, 1]``.
        num_classes: Classes that there are; None for as many as the highest number says.
        where: What they are called in messages.

    Raises:
        WorkloadError: They are no whole numbers from 0, or outside of the classes; tells the rows.
    """
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        raise WorkloadError(
            f"{where} has shape {list(y.shape)}, but classes are one number a row: turn one-hot "
            "rows into numbers by argmax, or say task: regression"
        )
    if y.dtype.kind not in "biuf":
        raise WorkloadError(f"{where} holds {y.dtype}, but classes are whole numbers from 0")
    wrong = ~np.isfinite(y) | (y != np.floor(y)) | (y < 0)
    if wrong.any():
        raise WorkloadError(
            f"{where} must hold whole numbers from 0 as classes, but {format_rows(wrong)} hold(s) "
            f"{y[wrong][0]}; for other numbers say task: regression"
        )
    highest = int(y.max())
    if num_classes is None:
        num_classes = highest + 1
    elif highest >= num_classes:
        outside = y >= num_classes
        raise WorkloadError(
            f"{where} has classes outside of the {num_classes} (0 to {num_classes - 1}) that there "
            f"are: {format_rows(outside)} hold(s) {y[outside][0]}"
        )
    if num_classes < 2:
        raise WorkloadError(f"{where} holds one class only, there is nothing to learn")
    return y.astype(np.int32), num_classes


def format_rows(wrong: Any, first: int = 0) -> str:
    """Return ``row(s) 3, 8, ... (12 in all)``.

    Args:
        wrong: Whether a row is meant, shape ``[rows]``.
        first: Number of the first row.
    """
    numbers = np.flatnonzero(wrong)
    listed = ", ".join(str(number + first) for number in numbers[:_MAX_LISTED])
    more = f", ... ({len(numbers)} in all)" if len(numbers) > _MAX_LISTED else ""
    return f"row(s) {listed}{more}"


def _floats(values: Any) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def make_optimizer(config: Config) -> Any:
    """Return the optimizer that a config names.

    Reads ``optimizer`` (sgd, adam, adamw or rmsprop; default adam), ``learning_rate`` (1e-3),
    ``momentum`` (0; sgd and rmsprop only), ``weight_decay`` (0) and ``clipnorm`` (none).

    Raises:
        ValueError: The name is none of the four.
    """
    import keras

    name = config.get("optimizer", "adam")
    arguments: dict[str, Any] = {"learning_rate": float(config.get("learning_rate", 1e-3))}
    if config.get("weight_decay"):
        arguments["weight_decay"] = float(config["weight_decay"])
    if config.get("clipnorm"):
        arguments["clipnorm"] = float(config["clipnorm"])
    if name in ("sgd", "rmsprop"):
        arguments["momentum"] = float(config.get("momentum", 0.0))
    optimizers = {
        "sgd": keras.optimizers.SGD,
        "adam": keras.optimizers.Adam,
        "adamw": keras.optimizers.AdamW,
        "rmsprop": keras.optimizers.RMSprop,
    }
    if name not in optimizers:
        raise ValueError(f"optimizer must be one of {', '.join(optimizers)}, not {name!r}")
    return optimizers[name](**arguments)
