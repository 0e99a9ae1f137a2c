"""Reproducible building of models and their variables, as in a fresh process."""

import contextlib
import functools
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

from tune_tf.errors import CheckpointError, WorkloadError
from tune_tf.space import Choice, SearchSpace, flatten, nest
from tune_tf.space.parameter import Parameter
from tune_tf.training.checkpoint import VariableName, match_variables, variable_names
from tune_tf.training.devices import Devices
from tune_tf.training.input.device_rows import first_rows_of
from tune_tf.training.input.per_example import apply_per_example
from tune_tf.training.keras_internals import (
    unregister_new_gradients,
    xla_on_request_only,
)
from tune_tf.training.process_state import begin_trial
from tune_tf.training.replicas.batch_parts import unpack_batch
from tune_tf.training.replicas.replicas import Replicas
from tune_tf.training.structure import structure_of
from tune_tf.workload import Config, Workload

_log = logging.getLogger(__name__)


def build_model(
    workload: Workload,
    config: Config,
    replicas: Replicas,
    seed: int,
    x: Any = None,
    *,
    may_run_eagerly: bool = False,
) -> keras.Model:
    """Return the workload's compiled model for a config, with fresh seeded weights.

    A few rows of input, ``x``, create the weights of a sequential model whose input is not
    declared. Anything but a compiled Keras model raises a WorkloadError, and so does one compiled
    with ``run_eagerly=True`` unless it may be.
    """
    begin_trial(seed)
    chosen = xla_on_request_only() if replicas.devices.on_cpu else contextlib.nullcontext()
    with replicas.scope(), chosen:
        model = _check_model(workload, workload.build_model(config))
    if model.run_eagerly and not may_run_eagerly:
        raise WorkloadError(
            f"{type(workload).__name__}.build_model compiled with run_eagerly=True, but "
            'training is a graph here: leave it out, or debug with loop="fit"'
        )
    if x is not None and type(model) is keras.Sequential:
        build_weights(model, x, replicas)
    return model


def build_for_checkpoint(
    workload: Workload, config: Config, seed: int, *, needs_data: bool = False
) -> keras.Model:
    """Return a model on one CPU with all variables of a checkpoint, the optimizer's included.

    ``needs_data`` is true if ``load_data`` sets attributes that the model depends on.
    """
    single = Replicas(Devices(("CPU:0",)))
    if needs_data:
        workload.load_data(config)
    model = build_model(workload, config, single, seed, may_run_eagerly=True)
    if not model.built:
        rows = first_rows_of(workload.load_data(config).train, "train", 2)
        build_weights(model, apply_per_example(workload, config, rows, training=True)[0], single)
    if not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    return model


def _check_model(workload: Workload, model: Any) -> keras.Model:
    name = type(workload).__name__
    if not isinstance(model, keras.Model):
        raise WorkloadError(
            f"{name}.build_model must return a compiled keras.Model, not {type(model).__name__}"
        )
    if not model.compiled or model.optimizer is None:
        raise WorkloadError(
            f"{name}.build_model returned a model that is not compiled: call "
            "model.compile(optimizer=..., loss=..., metrics=[...]) before returning it"
        )
    return model


def build_weights(model: keras.Model, x: Any, replicas: Replicas) -> None:
    """Create the weights of a model whose shapes depend on its first call.

    The call is symbolic, since a real one would advance random generators and RNN states.
    """
    if not model.built or not all(layer.built for layer in model.layers):
        symbols = keras.tree.map_structure(_symbol_like, _of_batch_size(model, x))
        with replicas.scope():
            model(symbols, training=False)


def _of_batch_size(model: keras.Model, rows: Any) -> Any:
    """Return as many rows as a model with a fixed batch size needs, such as a stateful RNN."""
    size = _batch_size(model)
    if size is None:
        return rows
    return keras.tree.map_structure(
        lambda a: keras.ops.take(a, np.arange(size) % a.shape[0], axis=0), rows
    )


def _batch_size(model: keras.Model) -> int | None:
    """Return the rows of a batch that a model is made for; None for any number."""
    inputs = getattr(model, "inputs", None)
    return inputs[0].shape[0] if inputs else None


def _symbol_like(array: Any) -> keras.KerasTensor:
    return keras.KerasTensor(array.shape, keras.backend.standardize_dtype(array.dtype))


def build_for_training(
    model: keras.Model,
    sample: tuple[Any, ...],
    replicas: Replicas,
    train_step: Callable[[Any], Any] | None = None,
) -> None:
    """Create all variables of a model, its loss, metrics and optimizer, given a few rows.

    They then have the values that they have before the first batch of ``fit``. Code of the user's
    is only traced, as ``fit`` does it; nothing of it runs. Of Keras' own models with known outputs,
    which takes less time, loss and metrics run.

    Args:
        model: A compiled model.
        sample: A few rows ``(x[, y[, sample_weight]])``.
        replicas: Replicas that train it.
        train_step: Training step of one device; the model's by default.
    """
    y_pred = None
    if not structure_of([model]).obstacle:
        build_weights(model, sample[0], replicas)
        sample = _of_batch_size(model, sample)
        y_pred = _zero_outputs(model, sample[0])
    if y_pred is not None:
        with replicas.scope():
            _call_loss(model, sample, y_pred)
    elif replicas.num == 1:
        trace = tf.function(partial(train_step or model.train_step), autograph=False)
        with replicas.device_scope(), unregister_new_gradients():
            trace.get_concrete_function(_batch_spec(model, sample))
    else:
        build_from_types(model, _batch_spec(model, sample), replicas)
    model.reset_metrics()
    if not model.optimizer.built:
        with replicas.scope():
            model.optimizer.build(model.trainable_variables)


def _zero_outputs(model: keras.Model, x: Any) -> Any:
    """Return outputs of a model for a batch, all zero; None if only a call tells what they are."""
    size = tf.nest.flatten(x)[0].shape[0]
    outputs = getattr(model, "output", None)
    if isinstance(outputs, list | tuple) and len(outputs) == 1:
        outputs = outputs[0]  # which a call returns
    has_losses = any(not tf.is_tensor(each) or tf.is_symbolic_tensor(each) for each in model.losses)
    if outputs is None or has_losses or any(None in each.shape[1:] for each in model.outputs):
        return None
    return keras.tree.map_structure(
        lambda each: keras.ops.zeros((size, *each.shape[1:]), each.dtype), outputs
    )


def _batch_spec(model: keras.Model, sample: Any) -> Any:
    """Return the types of batches of any number of rows, or of as many as the model takes."""

    def spec(rows: Any) -> Any:
        if isinstance(rows, tf.Tensor):
            return tf.TensorSpec((_batch_size(model), *rows.shape[1:]), rows.dtype)
        return tf.type_spec_from_value(rows)

    return tf.nest.map_structure(spec, sample)


def build_from_types(model: keras.Model, types: Any, replicas: Replicas) -> None:
    """Create the same variables, given the types of a batch; nothing is computed."""
    with replicas.scope():
        for call in (_call_model, _call):  # weights first, which penalties in the loss read
            values = [(variable, variable.value) for variable in model.trainable_variables]
            with keras.StatelessScope(values):  # at whose end new variables get values
                trace = tf.function(partial(call, model), autograph=False)
                trace.get_concrete_function(types)
        if not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)


def _call_model(model: keras.Model, batch: Any) -> Any:
    return model(unpack_batch(batch)[0], training=False)


def _call(model: keras.Model, batch: Any) -> None:
    """Call a model, its loss and its metrics, which create their variables at the first call."""
    _call_loss(model, batch, _call_model(model, batch))


def _call_loss(model: keras.Model, batch: Any, y_pred: Any) -> None:
    x, y, sample_weight = unpack_batch(batch)
    if model.loss is not None:  # else a custom train_step computes the loss
        model.compute_loss(x, y, y_pred, sample_weight, training=False)
    model.compute_metrics(x, y, y_pred, sample_weight)


def batch_norms(model: keras.Model) -> list[keras.layers.BatchNormalization]:
    """Return the BatchNormalization layers of a model, nested ones included."""
    kind = keras.layers.BatchNormalization
    return [layer for layer in layers_in(model) if isinstance(layer, kind)]


def warn_of_inexact_norms(model: keras.Model, num_replicas: int, micro_batches: int) -> None:
    """Warn once per process of layers that normalize by the rows of one replica or micro-batch."""
    layers = batch_norms(model)
    local = [layer.name for layer in layers if not layer.synchronized]
    if local and num_replicas > 1:
        _warn_once(
            f"{', '.join(local)}: BatchNormalization normalizes by the rows of one replica, so "
            f"results depend on the number of replicas ({num_replicas}); use "
            "Mirrored(synchronized_batch_norm=True) for the results of one device"
        )
    if layers and micro_batches > 1:
        _warn_once(
            f"{', '.join(layer.name for layer in layers)}: BatchNormalization normalizes by one of "
            f"{micro_batches} pieces of each batch (micro_batches), so results differ from whole "
            "batches; LayerNormalization and GroupNormalization do not depend on the batch"
        )


@functools.cache
def _warn_once(message: str) -> None:
    _log.warning(message)


def layers_in(root: keras.Layer) -> Iterator[keras.Layer]:
    """Yield a layer and all layers reachable through its attributes."""
    seen: set[int] = set()
    waiting: list[Any] = [root]
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, keras.Layer):
            yield part
            waiting += vars(part).values()
        elif isinstance(part, Mapping):
            waiting += part.values()
        elif isinstance(part, list | tuple):
            waiting += part


def structural_parameters(
    workload: Workload, space: SearchSpace, paths: Iterable[str]
) -> dict[str, str]:
    """Return the parameters whose change makes a checkpoint unusable, with the reason by path.

    The model is built for several values of each parameter, with the others fixed, to compare the
    variables of model and optimizer. The ``paths`` must be of unconditional parameters.
    """
    base = flatten(space.sample(np.random.default_rng(0)))
    reasons = {}
    for path in paths:
        if dependent := [
            other for other, each in space.parameters.items() if path in each.condition
        ]:
            reasons[path] = f"other parameters depend on its value: {', '.join(dependent)}"
            continue
        values = _values(space.parameters[path])
        first = _named_variables(workload, nest({**base, path: values[0]}))
        for value in values[1:]:
            try:
                match_variables(first, _named_variables(workload, nest({**base, path: value})))
            except CheckpointError:
                reasons[path] = (
                    f"models with {values[0]!r} and {value!r} have variables of different shapes"
                )
                break
    return reasons


def _values(parameter: Parameter) -> list[Any]:
    """Return the options of a parameter, or the ends of its range."""
    if isinstance(parameter, Choice):
        return list(parameter.options)
    return [parameter.low, parameter.high]  # type: ignore[attr-defined]


def _named_variables(workload: Workload, config: Config) -> list[VariableName]:
    return variable_names(build_for_checkpoint(workload, config, seed=0))
