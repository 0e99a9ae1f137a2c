"""User-defined data and model of a search."""

import abc
import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tune_tf.errors import InvalidSettingsError

if TYPE_CHECKING:
    import keras

Config = Mapping[str, Any]
"""Values of a trial, nested like the search space."""


@dataclass(frozen=True, eq=False)
class Data:
    """The data sets of a trial.

    Each set is a tuple ``(x, y)`` or ``(x, y, sample_weight)`` of NumPy arrays (or of nested dicts
    and tuples of them, for models with several inputs or outputs) whose first axis counts rows.
    ``sample_weight`` has shape ``[rows]``. It may also be a ``tf.data.Dataset`` or, with
    ``loop="fit"``, a ``keras.utils.PyDataset``, whose batches are trained on as they are.

    Args:
        train: Rows to train on.
        validation: Rows to validate on after every epoch; None for no validation.
        test: Rows that no trial uses; for the final model.
        class_weight: Weight of each class label in the loss, as in ``keras.Model.fit``.
        groups: The group of each row (a patient, a day, ...), those of ``train`` first and then
            those of ``validation``, shape ``[rows]``; for ``Folds(grouped=True)``, which keeps the
            rows of a group together. None where rows have no groups.
        steps_per_epoch: Batches of an epoch of a data set, as in ``keras.Model.fit``; None for all.
        validation_steps: Batches of a validation data set to validate on; None for all.
    """

    train: Any
    validation: Any = None
    test: Any = None
    class_weight: Mapping[int, float] | None = None
    groups: Any = None
    steps_per_epoch: int | None = None
    validation_steps: int | None = None


class Workload(abc.ABC):
    """Base class of the data and model of a search; instances are pickled to the trials.

    ``load_data`` and ``build_model`` read the trial's values from ``config``, a dict. ``load_data``
    runs again only when a value that it read has changed; if it returns data sets of TensorFlow or
    Keras, for each trial. Each trial has an instance of its own, unpickled anew; what
    ``load_data`` sets on it is there for the other methods of each trial with these data.
    """

    @abc.abstractmethod
    def load_data(self, config: Config) -> Data:
        """Return the data sets for a trial."""

    @abc.abstractmethod
    def build_model(self, config: Config) -> "keras.Model":
        """Return a compiled Keras model; called inside ``strategy.scope()``."""

    @classmethod
    def from_settings(cls, data: Mapping[str, Any], base_dir: Path) -> Self:
        """Return the workload of the settings ``data`` in a sweep file; default ``cls(**data)``.

        It is called in many processes, before any data exist: read none.

        Args:
            data: Settings as in the file.
            base_dir: Base of relative paths in them.

        Raises:
            InvalidSettingsError: All errors; they are reported with the prefix ``data.``.
        """
        arguments = inspect.signature(cls)
        try:
            arguments.bind(**data)
        except TypeError as error:
            raise InvalidSettingsError(f"must fit {cls.__name__}{arguments}: {error}") from None
        return cls(**data)

    def check_data(self) -> None:  # noqa: B027  no check by default
        """Check the data before any trial starts; default: no check.

        It runs once, where the sweep is started. Attributes that it sets are pickled to the trials.

        Raises:
            WorkloadError: The data are invalid; names the file, row or column.
        """

    def structure(self, config: Config) -> Hashable:
        """Return a key of trials that may share a traced graph; default: None for all.

        Trials share one only if their models are the same but for variables and numbers of Keras'
        own classes, and it runs no code but Keras'.
        """
        return None

    def train_step(self, model: "keras.Model", batch: Any) -> Mapping[str, Any]:
        """Do one gradient update on a batch and return metrics by name; default: the model's own.

        Write it as for one device. The loss is the mean over the rows of ``batch``, by
        ``model.compute_loss``, a Keras loss or by hand; gradients go through
        ``model.optimizer.apply`` (or ``apply_gradients``). Among several replicas each gets its
        rows of the batch, and gradients and returned values are weighted by rows: divide neither
        by the number of replicas nor by the global batch size. Only a last batch with fewer rows
        than replicas goes to each as a whole, so metrics count its rows more than once.

        Args:
            model: The compiled model.
            batch: ``(x, y)`` or ``(x, y, sample_weight)`` as in ``Data``, one batch of rows.

        Returns:
            Metrics by name, with the batch's loss as ``"loss"``; or ``model.get_metrics_result()``.
        """
        metrics: Mapping[str, Any] = model.train_step(batch)
        return metrics

    def stage_of(self, layer: "keras.Layer") -> int | None:
        """Return the stage of a layer, from 0, where a model is cut over several devices.

        Args:
            layer: Of a sequential or functional model.

        Returns:
            Its stage, which is none before those of the layers that it needs; None for that of
            the layers before it. Where all are None, stages are of like bytes of variables.
        """
        return None

    def per_example(self, config: Config, *, training: bool) -> "Callable[[Any, Any], Any] | None":
        """Return a computation for single rows, such as augmentation or features; default none.

        It is ``fn(example, seed)``. ``example`` is a row ``(x, y)`` or ``(x, y, sample_weight)`` of
        ``Data`` without the axis of the rows, and so is what it returns, whose shapes and types may
        be others: the model sees those. It runs vectorized inside the graph of an epoch, on each
        replica's own rows of a batch by ``tf.vectorized_map``.

        ``seed`` is an int32 tensor of shape ``[2]`` for ``tf.random.stateless_uniform`` and
        ``tf.image.stateless_random_*``: another for each row and epoch, the same for any number of
        replicas, in a reused process and after a restore. Several draws for a row need seeds of
        their own: ``tf.random.split(seed, n)``. Draws without a seed are refused.

        Args:
            config: The trial's values.
            training: Whether for training rows; those of validation keep their seeds in all epochs.
        """
        return None

    @property
    def computes_rows(self) -> bool:
        """Whether :meth:`per_example` is used for any config.

        Kinds of training without support for it check this. Override it if it depends on the
        instance.
        """
        return type(self).per_example is not Workload.per_example

    def serving_model(self, model: "keras.Model", config: Config) -> "keras.Model":
        """Return the model to serve in place of the trained one; default: the trained one.

        MLflow, ``keras`` and ``saved_model`` get this model; ``tflite`` gets the trained one.
        Override it if callers have other rows than ``load_data`` returns, such as text
        that training sees as codes, or the columns of a table by name.

        Args:
            model: The trained model.
            config: The trial's values.
        """
        return model

    def serving_rows(self, rows: Any) -> Any:
        """Convert a few rows for :meth:`serving_model`; default: unchanged.

        They become MLflow's input example and determine the signature. For a model with one input
        per column they may be a DataFrame.

        Args:
            rows: Input of the trained model: an array ``[rows, ...]``, or such arrays by name.
        """
        return rows

    def callbacks(self, config: Config) -> "Sequence[keras.callbacks.Callback]":
        """Return Keras callbacks for a trial; those for batches need ``loop="fit"``.

        They are called as by ``fit``; ``params["epochs"]`` is that of the sweep, or None outside
        one. Relative paths of Keras' own callbacks are in the folder ``files`` of the trial.
        Values that they add to an epoch's logs are reported with its metrics. Checkpoints keep
        attributes that are numbers, text, NumPy arrays, or lists, tuples, sets and dictionaries of
        these; other objects, variables and open files start anew.
        """
        return ()

    def shuffle(self, config: Config) -> bool:
        """Return whether to shuffle the training rows every epoch; default True."""
        return True

    def global_batch_size(self, config: Config) -> int:
        """Return the rows in one gradient update over all replicas; default ``batch_size``."""
        return int(config.get("batch_size", 32))


def with_mixin(mixin: type, workload: Workload, **attributes: Any) -> Workload:
    """Return a copy of a workload whose class has a mixin in front, with additional attributes.

    It is a subclass, not a wrapper, so that other overridden methods of the user's class remain
    visible.
    """
    base = type(workload)
    copy: Workload = object.__new__(type(base.__name__, (mixin, base), {}))
    for name, value in {**vars(workload), **attributes}.items():
        object.__setattr__(copy, name, value)
    return copy
