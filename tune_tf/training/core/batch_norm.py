"""BatchNormalization layers with several replicas or micro-batches."""

import functools
import logging
from collections.abc import Iterator, Mapping
from typing import Any

import keras

_log = logging.getLogger(__name__)


def batch_norms(model: keras.Model) -> list[keras.layers.BatchNormalization]:
    """Return the BatchNormalization layers of a model, nested ones included."""
    return [
        layer for layer in layers_in(model) if isinstance(layer, keras.layers.BatchNormalization)
    ]


def synchronize(model: keras.Model) -> None:
    """Set ``synchronized`` in the BatchNormalization layers of an untraced model."""
    for layer in batch_norms(model):
        layer.synchronized = True


def warn_of_local_statistics(model: keras.Model, num_replicas: int) -> None:
    """Warn once per process of layers whose results depend on the number of replicas."""
    names = tuple(layer.name for layer in batch_norms(model) if not layer.synchronized)
    if names and num_replicas > 1:
        _warn_once(names, num_replicas)


def warn_of_micro_batches(model: keras.Model, micro_batches: int) -> None:
    """Warn once per process of layers that normalize by a micro-batch."""
    names = tuple(layer.name for layer in batch_norms(model))
    if names and micro_batches > 1:
        _warn_of_pieces_once(names, micro_batches)


@functools.cache
def _warn_once(names: tuple[str, ...], num_replicas: int) -> None:
    _log.warning(
        "%s: BatchNormalization normalises by the rows of one replica, so results depend on the "
        "number of replicas (%d); use Mirrored(synchronized_batch_norm=True) for the results of "
        "one device",
        ", ".join(names),
        num_replicas,
    )


@functools.cache
def _warn_of_pieces_once(names: tuple[str, ...], micro_batches: int) -> None:
    _log.warning(
        "%s: BatchNormalization normalises by one of %d pieces of each batch (micro_batches), so "
        "results differ from whole batches; LayerNormalization and GroupNormalization do not "
        "depend on the batch",
        ", ".join(names),
        micro_batches,
    )


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
