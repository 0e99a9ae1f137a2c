"""Layer calls of a Keras model, and their assignment to stages."""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from tune_tf.errors import WorkloadError
from tune_tf.training.keras_internals import has_layer_graph, origin_of

StageOf = Callable[[Any], int | None]
"""Function from a layer to its stage, from 0; None for the stage of the layers before it."""


@dataclass(frozen=True, eq=False)
class Call:
    """Call of a layer or operation, with its symbolic input and output tensors."""

    operation: Any
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]

    @property
    def is_input(self) -> bool:
        """Whether the call is an input layer of the model."""
        return isinstance(self.operation, keras.layers.InputLayer)

    @property
    def num_bytes(self) -> int:
        """Bytes of the operation's variables."""
        return sum(
            math.prod(variable.shape) * tf.as_dtype(variable.dtype).size
            for variable in getattr(self.operation, "variables", ())
        )


def calls_of(model: keras.Model) -> list[Call]:
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
    calls: list[Call] = []
    visited: set[tuple[int, int]] = set()
    waiting = [(tensor, False) for tensor in reversed(keras.tree.flatten(model.outputs))]
    while waiting:
        tensor, inputs_are_done = waiting.pop()
        operation, index, node = origin_of(tensor)
        if (id(operation), index) in visited:
            continue
        if inputs_are_done:
            visited.add((id(operation), index))
            calls.append(Call(operation, tuple(node.input_tensors), tuple(node.output_tensors)))
        else:
            waiting.append((tensor, True))
            waiting += [(each, False) for each in reversed(node.input_tensors)]
    return calls


def stage_plan(calls: Sequence[Call], num_stages: int, stage_of: StageOf) -> tuple[int, ...]:
    """Return the stage of each call of ``calls_of``, from 0.

    If ``stage_of`` assigns no layer, the calls are cut in order so that the largest stage has as
    few bytes of variables as possible.

    Raises:
        WorkloadError: The model cannot be cut like that; the message names the layer.
    """
    num_layers = len({id(call.operation) for call in calls if not call.is_input})
    if num_stages > num_layers:
        raise WorkloadError(
            f"the model has {num_layers} layer(s), which cannot fill {num_stages} stages: use "
            f"num_stages={max(1, num_layers)} or fewer"
        )
    requests = {id(call.operation): _requested_stage(call, num_stages, stage_of) for call in calls}
    if any(stage is not None for stage in requests.values()):
        return _plan_as_requested(calls, num_stages, requests)
    return _plan_evenly(calls, num_stages)


def split_evenly(sizes: Sequence[int], num_parts: int) -> tuple[int, ...]:
    """Return the part of each item when ordered items are split into balanced, non-empty parts.

    The split minimizes the largest part, then the sum of squares.
    """
    sums = [0, *itertools.accumulate(sizes)]

    @functools.cache
    def best(end: int, num_parts: int) -> tuple[int, int, int]:
        """Return largest part, sum of squares and minus the last cut of the first items."""
        if num_parts == 1:
            return sums[end], sums[end] ** 2, 0
        candidates = []
        for cut in range(num_parts - 1, end):
            largest, squares, _ = best(cut, num_parts - 1)
            size = sums[end] - sums[cut]
            candidates.append((max(largest, size), squares + size * size, -cut))
        return min(candidates)  # the latest cut wins ties

    parts: list[int] = []
    end = len(sizes)
    for part in reversed(range(num_parts)):
        cut = -best(end, part + 1)[2]
        parts = [part] * (end - cut) + parts
        end = cut
    return tuple(parts)


def _plan_evenly(calls: Sequence[Call], num_stages: int) -> tuple[int, ...]:
    blocks = _blocks(calls)
    if len(blocks) < num_stages:
        first, last = max(blocks, key=lambda block: block[1] - block[0])
        names = [call.operation.name for call in calls[first : last + 1] if not call.is_input]
        raise WorkloadError(
            f"the model cannot be cut into {num_stages} stages: the layers from {names[0]!r} to "
            f"{names[-1]!r} stay together, because one of them is used again at the end; use "
            f"num_stages={len(blocks)} or fewer"
        )
    sizes = []
    for first, last in blocks:
        by_operation = {id(call.operation): call for call in calls[first : last + 1]}
        sizes.append(sum(call.num_bytes for call in by_operation.values()))
    plan: list[int] = []
    for (first, last), stage in zip(blocks, split_evenly(sizes, num_stages), strict=True):
        plan += [0 if call.is_input else stage for call in calls[first : last + 1]]
    return tuple(plan)


def _blocks(calls: Sequence[Call]) -> list[tuple[int, int]]:
    """Return the first and last index of the runs of calls between which a model can be cut.

    All calls of a layer share its variables, so they belong to one run with all calls between them.
    """
    last = {id(call.operation): index for index, call in enumerate(calls)}
    blocks: list[tuple[int, int]] = []
    begin = end = 0
    for index, call in enumerate(calls):
        if index > end:
            blocks.append((begin, end))
            begin = end = index
        end = max(end, last[id(call.operation)])
        if all(each.is_input for each in calls[begin : index + 1]) and index == end:
            end = min(index + 1, len(calls) - 1)  # a stage needs more than an input
    blocks.append((begin, end))
    return blocks


def _requested_stage(call: Call, num_stages: int, stage_of: StageOf) -> int | None:
    if call.is_input or not isinstance(call.operation, keras.Layer):
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


def _plan_as_requested(
    calls: Sequence[Call], num_stages: int, requests: dict[int, int | None]
) -> tuple[int, ...]:
    tensor_stages: dict[int, int] = {}
    operation_stages: dict[int, int] = {}
    plan = []
    for call in calls:
        name = call.operation.name
        earliest = max((tensor_stages[id(tensor)] for tensor in call.inputs), default=0)
        stage = requests[id(call.operation)]
        if stage is None:
            stage = operation_stages.get(id(call.operation), earliest)
            if stage < earliest:
                raise WorkloadError(
                    f"the layer {name!r} is shared across stages: it is called on stage {stage} "
                    f"and again on the output of stage {earliest}; place it and all layers between "
                    "its calls on one stage"
                )
        elif stage < earliest:
            raise WorkloadError(
                f"the model cannot be cut at the layer {name!r}: stage_of puts it on stage "
                f"{stage}, but it needs the output of stage {earliest}; stages run in order"
            )
        operation_stages[id(call.operation)] = stage
        tensor_stages |= {id(tensor): stage for tensor in call.outputs}
        plan.append(stage)
    filled = {stage for call, stage in zip(calls, plan, strict=True) if not call.is_input}
    if empty := set(range(num_stages)) - filled:
        raise WorkloadError(
            f"stage_of puts no layer on stage {', '.join(map(str, sorted(empty)))} of "
            f"{num_stages}: give each stage at least one, or use fewer stages"
        )
    return tuple(plan)
