"""Access to private parts of Keras and TensorFlow."""

import contextlib
import functools
import math
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import keras
import tensorflow as tf
from keras.src.random import seed_generator
from tensorflow.python.framework import op_def_registry
from tensorflow.python.framework import ops as tensorflow_ops
from tensorflow.python.ops import gen_stateless_random_ops_v2, random_ops_util

from tune_tf.errors import WorkloadError

# Attributes that no trace depends on: bookkeeping, results of earlier calls, values derived from
# other attributes.
_OBJECT_BOOKKEEPING = frozenset(("_tracker", "_lock"))
_VARIABLE_BOOKKEEPING = _OBJECT_BOOKKEEPING | {"_value", "_initializer"}
_OPTIMIZER_BOOKKEEPING = _OBJECT_BOOKKEEPING | {
    *("_trainable_variables_indices", "_distribution_strategy"),
    *("_exclude_from_weight_decay", "_exclude_from_weight_decay_cache"),
}
_LAYER_BOOKKEEPING = _OBJECT_BOOKKEEPING | {
    *("_tracked", "_auto_config", "_called", "_path", "_parent_path", "_build_shapes_dict"),
    *("build", "quantize", "_inbound_nodes", "_outbound_nodes", "_call_signature"),
    *("_losses", "_loss_ids", "_losses_override", "call_signature_parameters"),
    *("_call_context_args", "_call_has_context_arg"),
    *("_saved_model_inputs_spec", "_saved_model_arg_spec"),
}
_MODEL_BOOKKEEPING = _LAYER_BOOKKEEPING | {
    *("_compile_config", "stop_training", "history", "_compiled_trainable_state"),
    *("_distribute_strategy", "train_function", "test_function", "predict_function"),
    *("_nodes", "_nodes_by_depth", "_operations_by_depth"),
}
_NUM_BITS: Final = {tf.float32: 23, tf.float16: 10, tf.bfloat16: 7}  # of a uniform number
_LEAST_UNIFORM: Final = 1e-7  # whose logarithm is finite
_SEEDS = ("seed", "_init_seed", "_initial_seed")
_BUILDING = frozenset(("__init__", "build", "get_config", "from_config"))
_RandomInitializer: Any = next(
    base for base in keras.initializers.RandomNormal.__mro__ if base.__name__ == "RandomInitializer"
)


@contextlib.contextmanager
def unregister_new_gradients() -> Iterator[None]:
    """Remove custom gradients that are registered in this context from TensorFlow's registry.

    TensorFlow needs them only while it traces, but keeps each forever with its whole graph: some
    megabytes per trace. Keras' optimizers and ``silu`` register them.
    """
    registry = getattr(tensorflow_ops.gradient_registry, "_registry", {})
    before = set(registry)
    try:
        yield
    finally:
        for name in [n for n in registry if n.startswith("CustomGradient-") and n not in before]:
            del registry[name]


def is_stateful(operation: str) -> bool:
    """Return whether two runs of a kind of TensorFlow operation may differ, as TensorFlow has it.

    Unknown kinds count as stateful.
    """
    definition = op_def_registry.get(operation)
    return definition is None or bool(definition.is_stateful)


class _CompileThread(threading.local):
    chooses_xla: bool = True


_compile_thread = _CompileThread()


def use_xla_on_request_only() -> None:
    """Let ``compile(jit_compile="auto")``, the default, not choose XLA in this thread.

    Keras chooses it wherever the machine has a GPU, even one that is hidden from this process. On a
    CPU, XLA makes convolutions slower, and it compiles for long.
    """
    _compile_thread.chooses_xla = False
    _install_xla_choice()


@functools.cache
def _install_xla_choice() -> None:
    trainer = next(base for base in keras.Model.__mro__ if base.__name__ == "Trainer")
    choose = getattr(trainer, "_resolve_auto_jit_compile", None)
    if choose is None:  # then Keras' choice stays
        return

    @functools.wraps(choose)
    def choose_if_allowed(model: Any) -> bool:
        return _compile_thread.chooses_xla and bool(choose(model))

    trainer._resolve_auto_jit_compile = choose_if_allowed  # noqa: SLF001


@contextlib.contextmanager
def draws_as_without_xla() -> Iterator[None]:
    """Let random operations of graphs that XLA compiles, made in this context, draw as others do.

    TensorFlow draws the same bits by Philox, compiled or not, if it is told to, but makes numbers
    of them in two ways. A kernel takes the lowest bits for a uniform number, and pairs of those for
    normal ones (Box and Muller, 1958); XLA takes the highest bits, and the inverse of the error
    function. Here graphs do what kernels do (``random_distributions_utils.h`` of TensorFlow), for
    ``tf.random.stateless_*``, and so for Keras' layers: integers, and uniform and normal numbers in
    32 and 16 bits.
    """
    choose: Any = getattr(random_ops_util, "get_key_counter_alg", None)

    def choose_philox(seed: Any, alg: Any) -> Any:
        return choose(seed, "philox" if alg in (None, "auto_select") else alg)

    parts = (
        (random_ops_util, "get_key_counter_alg", choose_philox),
        (gen_stateless_random_ops_v2, "stateless_random_uniform_v2", _uniform),
        (gen_stateless_random_ops_v2, "stateless_random_normal_v2", _normal),
    )
    with contextlib.ExitStack() as patches:
        for owner, name, replacement in parts if all(hasattr(*part[:2]) for part in parts) else ():
            patches.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, replacement)
        yield


def _uniform(
    shape: Any, key: Any, counter: Any, alg: Any, dtype: Any = tf.float32, name: Any = None
) -> Any:
    """Return numbers from 0 to 1, excluded: the lowest bits of a draw as a fraction."""
    kind = tf.as_dtype(dtype)
    if kind not in _NUM_BITS:
        return tf.raw_ops.StatelessRandomUniformV2(
            shape=shape, key=key, counter=counter, alg=alg, dtype=kind, name=name
        )
    bits = tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=shape, key=key, counter=counter, alg=alg, dtype=tf.uint32
    )
    lowest = tf.cast(bits & (2 ** _NUM_BITS[kind] - 1), tf.int32)
    return tf.cast(lowest, kind) * tf.constant(2.0 ** -_NUM_BITS[kind], kind)


def _normal(
    shape: Any, key: Any, counter: Any, alg: Any, dtype: Any = tf.float32, name: Any = None
) -> Any:
    """Return normal numbers, two of each two uniform ones: a radius and an angle."""
    kind = tf.as_dtype(dtype)
    if kind not in _NUM_BITS:
        return tf.raw_ops.StatelessRandomNormalV2(
            shape=shape, key=key, counter=counter, alg=alg, dtype=kind, name=name
        )
    number = tf.reduce_prod(shape)
    pairs = tf.reshape(_uniform([(number + 1) // 2 * 2], key, counter, alg), [-1, 2])
    radius = tf.sqrt(-2.0 * tf.math.log(tf.maximum(pairs[:, 0], _LEAST_UNIFORM)))
    angle = 2.0 * math.pi * pairs[:, 1]
    numbers = tf.stack([tf.sin(angle) * radius, tf.cos(angle) * radius], axis=1)
    return tf.cast(tf.reshape(tf.reshape(numbers, [-1])[:number], shape), kind)


def bookkeeping_attributes(owner: Any) -> frozenset[str]:
    """Return the attributes of a Keras object that no trace depends on."""
    if isinstance(owner, keras.Variable):
        return _VARIABLE_BOOKKEEPING
    if isinstance(owner, keras.Model):
        return _MODEL_BOOKKEEPING
    if isinstance(owner, keras.Operation):
        return _LAYER_BOOKKEEPING
    if isinstance(owner, keras.optimizers.Optimizer):
        return _OPTIMIZER_BOOKKEEPING
    return _OBJECT_BOOKKEEPING


def seed_attributes(owner: Any) -> tuple[str, ...]:
    """Return the attributes of a Keras object that only affect initial values of variables."""
    if isinstance(owner, keras.random.SeedGenerator):
        return _SEEDS
    if isinstance(owner, keras.Layer) and is_of_keras(type(owner)):
        generators = (v for v in vars(owner).values() if isinstance(v, keras.random.SeedGenerator))
        return _SEEDS if any(generators) else ()
    return ()


def initializer_seed_attributes(owner: Any, attribute: str) -> tuple[str, ...]:
    """Return the attributes of an initializer that only affect initial values of variables.

    The initializer is an ``attribute`` of ``owner``. There are none if a custom layer also uses the
    initializer in calls.
    """
    if not isinstance(vars(owner)[attribute], _RandomInitializer):
        return ()
    for kind in type(owner).__mro__:
        for name, function in vars(kind).items():
            code = getattr(function, "__code__", None)
            if code is None or name in _BUILDING or is_of_keras(kind):
                continue
            if attribute in code.co_names:
                return ()
    return _SEEDS


def is_of_keras(kind: type) -> bool:
    """Return whether a class is Keras' own."""
    return kind.__module__.startswith("keras.")


def global_seed_generator() -> keras.random.SeedGenerator:
    """Return this thread's ``keras.random`` generator for draws without a seed."""
    state = random.getstate()  # the first call draws a seed
    generator = seed_generator.global_seed_generator()
    random.setstate(state)
    return generator


class LayerCall(NamedTuple):
    """Call of a layer or operation in a functional model, with its symbolic arguments."""

    operation: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    outputs: Sequence[Any]

    @property
    def inputs(self) -> list[Any]:
        """Symbolic tensors among the arguments."""
        arguments = keras.tree.flatten((self.args, self.kwargs))
        return [each for each in arguments if isinstance(each, keras.KerasTensor)]

    def run(self, values: dict[int, Any], training: bool | None) -> Any:
        """Call the operation as a functional model does, and add its results to ``values``.

        Args:
            values: Values of symbolic tensors by ``id``.
            training: Overrides the ``training`` of the call, unless it is None.
        """

        def value_of(argument: Any) -> Any:
            return values[id(argument)] if isinstance(argument, keras.KerasTensor) else argument

        args, kwargs = keras.tree.map_structure(value_of, (self.args, dict(self.kwargs)))
        if training is not None and "training" in getattr(self.operation, "_call_context_args", ()):
            kwargs["training"] = training
        results = self.operation(*args, **kwargs)
        values |= zip(map(id, self.outputs), keras.tree.flatten(results), strict=False)
        return results


def calls_in_order(model: Any) -> Iterator[LayerCall]:
    """Yield each call of a sequential or functional model, without its inputs, in order.

    Other Keras objects have no calls.
    """
    by_depth = vars(layer_graph(model)).get("_nodes_by_depth") or {}
    for depth in sorted(by_depth, reverse=True):
        for node in by_depth[depth]:
            arguments = node.arguments
            yield LayerCall(node.operation, arguments.args, arguments.kwargs, node.outputs)


def layer_graph(model: Any) -> Any:
    """Return the functional model that a sequential model calls, or the model itself."""
    return vars(model).get("_functional") or model


def has_layer_graph(model: keras.Model) -> bool:
    """Return whether a model is sequential or functional, and so calls its layers in a graph."""
    if not getattr(model, "outputs", None):
        return False
    caller = next(each for each in type(model).__mro__ if "call" in vars(each))
    return caller.__module__.split(".")[0] == "keras"


@contextlib.contextmanager
def replace_calls(calls: Mapping[keras.Model, Callable[..., Any]]) -> Iterator[None]:
    """Let models call these functions in place of their ``call``, with any inputs.

    The functions take the arguments of ``call``.
    """
    for model, call in calls.items():  # not by setattr, by which Keras tracks attributes
        vars(model).update(call=call, _assert_input_compatibility=lambda *_: None)
    try:
        yield
    finally:
        for model in calls:
            del vars(model)["call"], vars(model)["_assert_input_compatibility"]


def standard_inputs(model: keras.Model, inputs: Any) -> list[Any]:
    """Return the inputs of a sequential or functional model as flat tensors of its types."""
    standardize = getattr(layer_graph(model), "_standardize_inputs", keras.tree.flatten)
    tensors: list[Any] = standardize(inputs)
    return tensors


def keras_mask(tensor: Any) -> Any:
    """Return the mask of a tensor, by which Keras' layers skip steps; None without one."""
    return getattr(tensor, "_keras_mask", None)


def set_keras_mask(tensor: Any, mask: Any) -> None:
    """Set the mask of a tensor."""
    tensor._keras_mask = mask  # noqa: SLF001


def added_losses(layer: keras.Layer, *, take: bool = False) -> list[Any]:
    """Return the losses that ``add_loss`` added in a layer's last call; ``take`` removes them.

    Raises:
        WorkloadError: This version of Keras keeps them elsewhere.
    """
    losses = vars(layer).get("_losses")
    if losses is None:
        raise WorkloadError(
            f"Keras {keras.__version__} does not tell which losses a layer adds, so a batch cannot "
            "be split: use another version, or one replica and micro_batches 1"
        )
    added = list(losses)
    if take:
        losses.clear()
    return added


def origin_of(tensor: Any) -> tuple[Any, int, Any]:
    """Return the operation that made a symbolic tensor, the number of its call, and that node.

    Raises:
        WorkloadError: This version of Keras does not tell.
    """
    operation, index, _ = getattr(tensor, "_keras_history", (None, 0, 0))
    nodes = getattr(operation, "_inbound_nodes", None)
    if not nodes:
        raise WorkloadError(
            f"Keras {keras.__version__} does not tell which layer made {tensor.name}, so the model "
            "cannot be cut into stages: use another version, or kind 'mirrored'"
        )
    return operation, index, nodes[index]


def undecayed_indices(optimizer: Any, variables: Sequence[Any]) -> list[int]:
    """Return the indices of variables excluded by ``optimizer.exclude_from_weight_decay``."""
    keys = getattr(optimizer, "_exclude_from_weight_decay", None)
    if not keys:
        return []
    return [
        index
        for index, variable in enumerate(variables)
        if isinstance(variable, keras.Variable) and optimizer._var_key(variable) in keys  # noqa: SLF001
    ]


def hide_strategy(model: keras.Model) -> None:
    """Let ``fit`` read and pass on batches as on one device, though a strategy has the variables.

    Raises:
        WorkloadError: This version of Keras keeps the strategy elsewhere.
    """
    if not hasattr(model, "_distribute_strategy"):
        raise WorkloadError(
            f'Keras {keras.__version__} does not tell the strategy of a model, so loop="fit" '
            'cannot train several replicas: use another version, or loop="graph"'
        )
    model._distribute_strategy = None  # noqa: SLF001


def profiles_batches(callback: keras.callbacks.TensorBoard) -> bool:
    """Return whether a TensorBoard callback has a ``profile_batch`` other than 0."""
    return bool(vars(callback).get("_should_trace", True))


def learning_rate_attribute(optimizer: Any) -> Any:
    """Return the learning rate of an optimizer: a variable, a schedule or None."""
    return getattr(optimizer, "_learning_rate", None)


def trace_settings(function: Any) -> tuple[Any, ...]:
    """Return the settings of a ``tf.function`` that its traces depend on, as far as known."""
    names = ("_jit_compile", "_autograph", "_reduce_retracing")
    return (function.input_signature, *(getattr(function, name, None) for name in names))


def table_default(table: Any) -> Any:
    """Return the default value of a lookup table; None if it has no default."""
    return getattr(table, "_default_value", None)
