"""Layer calls of a Keras model, and their assignment to stages."""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from tune_tf.errors import WorkloadError
from tune_tf.training.keras_internals import LayerCall, calls_in_order, has_layer_graph

StageOf = Callable[[Any], int | None]
"""Function from a layer to its stage, from 0; None for the stage of the layers before it."""


def calls_of(model: keras.Model) -> list[LayerCall]:
    """Return the calls of a built sequential or functional model in topological order.

    The order is the same for models that were built alike. A subclassed model has no graph of
    layers and raises a WorkloadError.
    """
    if not has_layer_graph(model):
        raise WorkloadError(
            f"{type(model).__name__} calls its layers in custom code, so there is no layer graph "
            "to cut into stages: return a keras.Sequential or a functional model "
            "(keras.Model(inputs, outputs))"
        )
    return list(calls_in_order(model))


def stage_plan(calls: Sequence[LayerCall], num_stages: int, stage_of: StageOf) -> tuple[int, ...]:
    """Return the stage of each call of ``calls_of``, from 0.

    If ``stage_of`` assigns no layer, the layers are cut in the order of their first calls so that
    the largest stage has as few bytes of variables as possible.

    Raises:
        WorkloadError: The model cannot be cut like that; the message names the layer.
    """
    num_layers = len({id(call.operation) for call in calls if not _is_input(call)})
    if num_stages > num_layers:
        raise WorkloadError(
            f"the model has {num_layers} layer(s), which cannot fill {num_stages} stages: use "
            f"num_stages={max(1, num_layers)} or fewer"
        )
    requests = {id(call.operation): _requested_stage(call, num_stages, stage_of) for call in calls}
    if all(stage is None for stage in requests.values()):
        requests |= _evenly(calls, num_stages)
    return _plan(calls, num_stages, requests)


def split_evenly(sizes: Sequence[int], num_parts: int) -> tuple[int, ...]:
    """Return the part of each item when ordered items are split into balanced, non-empty parts.

    The split minimizes the largest part.
    """
    sums = [0, *itertools.accumulate(sizes)]

    @functools.cache
    def best(end: int, num_parts: int) -> tuple[int, tuple[int, ...]]:
        """Return the size of the largest part of the first items, and minus the cuts."""
        if num_parts == 1:
            return sums[end], ()
        splits = []
        for cut in range(num_parts - 1, end):
            largest, cuts = best(cut, num_parts - 1)
            splits.append((max(largest, sums[end] - sums[cut]), (*cuts, -cut)))
        return min(splits)  # the latest cuts win ties

    _, cuts = best(len(sizes), num_parts)
    return tuple(sum(-cut <= item for cut in cuts) for item in range(len(sizes)))


def _is_input(call: LayerCall) -> bool:
    return isinstance(call.operation, keras.layers.InputLayer)


def _num_bytes(call: LayerCall) -> int:
    """Return the bytes of the variables of a call's operation."""
    return sum(
        math.prod(variable.shape) * tf.as_dtype(variable.dtype).size
        for variable in getattr(call.operation, "variables", ())
    )


def _evenly(calls: Sequence[LayerCall], num_stages: int) -> dict[int, int | None]:
    """Return the stage of each operation, by ``id``."""
    operations = {id(call.operation): _num_bytes(call) for call in calls if not _is_input(call)}
    return dict(zip(operations, split_evenly([*operations.values()], num_stages), strict=True))


def _requested_stage(call: LayerCall, num_stages: int, stage_of: StageOf) -> int | None:
    if _is_input(call) or not isinstance(call.operation, keras.Layer):
        return None
    stage = stage_of(call.operation)
    if stage is None:
        return None
    if isinstance(stage, bool) or not isinstance(stage, int) or not 0 <= stage < num_stages:
        raise WorkloadError(
            f"stage_of returned {stage!r} for the layer {call.operation.name!r}: a stage is an "
            f"integer from 0 to {num_stages - 1}, or None for that of the preceding layers"
        )
    return stage


def _plan(
    calls: Sequence[LayerCall], num_stages: int, requests: dict[int, int | None]
) -> tuple[int, ...]:
    tensor_stages: dict[int, int] = {}
    operation_stages: dict[int, int] = {}
    plan = []
    for call in calls:
        name = call.operation.name
        earliest = max((tensor_stages[id(tensor)] for tensor in call.inputs), default=0)
        stage = operation_stages.get(id(call.operation), requests[id(call.operation)])
        if stage is None:
            stage = earliest
        if stage < earliest and id(call.operation) in operation_stages:
            raise WorkloadError(
                f"the layer {name!r} is shared across stages: it is called on stage {stage} and "
                f"again on the output of stage {earliest}; place it and all layers between its "
                "calls on one stage with stage_of, or use fewer stages"
            )
        if stage < earliest:
            raise WorkloadError(
                f"the model cannot be cut at the layer {name!r}: stage_of puts it on stage "
                f"{stage}, but it needs the output of stage {earliest}; stages run in order"
            )
        operation_stages[id(call.operation)] = stage
        tensor_stages |= {id(tensor): stage for tensor in call.outputs}
        plan.append(stage)
    filled = {stage for call, stage in zip(calls, plan, strict=True) if not _is_input(call)}
    if empty := set(range(num_stages)) - filled:
        raise WorkloadError(
            f"stage_of puts no layer on stage {', '.join(map(str, sorted(empty)))} of "
            f"{num_stages}: give each stage at least one, or use fewer stages"
        )
    return tuple(plan)
