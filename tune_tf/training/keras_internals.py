"""Access to private parts of Keras and TensorFlow."""

import contextlib
import functools
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf
from keras.src.backend.common import global_state
from keras.src.random import seed_generator
from tensorflow.python.eager import context
from tensorflow.python.framework import ops as tensorflow_ops
from tensorflow.python.framework import random_seed

from tune_tf.errors import WorkloadError

# Attributes that no trace depends on: bookkeeping, results of earlier calls, values derived from
# other attributes.
_OBJECT_BOOKKEEPING = frozenset(("_tracker", "_lock"))
_VARIABLE_BOOKKEEPING = _OBJECT_BOOKKEEPING | {"_value", "_initializer"}
_OPTIMIZER_BOOKKEEPING = _OBJECT_BOOKKEEPING | {
    *("_trainable_variables_indices", "_distribution_strategy", "_var_to_optimizer_idx"),
    "_exclude_from_weight_decay_cache",
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
_SUM = "_all_reduce_sum_gradients"
_SEEDS = ("seed", "_init_seed", "_initial_seed")
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


@contextlib.contextmanager
def xla_on_request_only() -> Iterator[None]:
    """Let ``compile(jit_compile="auto")``, the default, not choose XLA in this context.

    Keras chooses it wherever the machine has a GPU, even one that is hidden from this process. On a
    CPU, XLA makes convolutions slower, and it compiles for long.
    """
    trainer = next(base for base in keras.Model.__mro__ if base.__name__ == "Trainer")
    choose = getattr(trainer, "_resolve_auto_jit_compile", None)
    if choose is not None:  # else Keras' choice stays
        trainer._resolve_auto_jit_compile = lambda model: False  # noqa: SLF001
    try:
        yield
    finally:
        if choose is not None:
            trainer._resolve_auto_jit_compile = choose  # noqa: SLF001


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
    if isinstance(owner, keras.random.SeedGenerator | _RandomInitializer):
        return _SEEDS
    if isinstance(owner, keras.Layer):
        generators = (v for v in vars(owner).values() if isinstance(v, keras.random.SeedGenerator))
        return _SEEDS if any(generators) else ()
    return ()


def is_of_keras(kind: type) -> bool:
    """Return whether a class is Keras' own."""
    return kind.__module__.startswith("keras.")


def global_seed_generator() -> keras.random.SeedGenerator:
    """Return this thread's ``keras.random`` generator for draws without a seed."""
    state = random.getstate()  # the first call draws a seed
    generator = seed_generator.global_seed_generator()
    random.setstate(state)
    return generator


_NAMES = "object_name_uids"


def automatic_names() -> dict[str, int]:
    """Return how many objects Keras has named automatically in this thread, by prefix."""
    return dict(global_state.get_global_attribute(_NAMES, {}) or {})


def reset_keras_state(names: Mapping[str, int]) -> None:
    """Reset this thread's generator for draws without a seed, and the counts of names."""
    global_state.set_global_attribute(seed_generator.GLOBAL_SEED_GENERATOR, None)
    global_state.set_global_attribute(_NAMES, defaultdict(int, names))


def global_seed() -> int | None:
    """Return TensorFlow's global seed, as ``tf.random.set_seed`` has set it."""
    seed: int | None = context.global_seed()
    return seed


def before_eager_draws(act: Callable[[], None]) -> bool:
    """Call a function before each eager operation that draws by TensorFlow's global seed.

    Returns:
        Whether that is possible with this version of TensorFlow.
    """
    get_seed = getattr(random_seed, "get_seed", None)
    if get_seed is None:
        return False

    @functools.wraps(get_seed)
    def get_seed_after(op_seed: Any) -> Any:
        if context.executing_eagerly():
            act()
        return get_seed(op_seed)

    random_seed.get_seed = get_seed_after
    return True


def captured_handles(function: Any) -> list[Any]:
    """Return what a concrete function takes besides its arguments, and let it forget them.

    They are handles of variables, and constants. Otherwise its graph would keep the variables of
    the trial that traced it; ``set_external_captures`` sets those of a call.
    """
    handles = list(function.captured_inputs)
    captures = getattr(function.graph, "function_captures", None)
    if captures is not None:
        captures.clear()
    return handles


def parts_of_variable(variable: Any) -> tuple[Any, ...]:
    """Return the TensorFlow variables of a Keras variable, one per replica."""
    inner = variable.value if isinstance(variable, keras.Variable) else variable
    is_distributed = isinstance(inner, tf.distribute.DistributedValues)
    return tuple(inner.values) if is_distributed else (inner,)


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
    """Yield each call of a sequential or functional model in topological order.

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


def has_keras_logits(tensor: Any) -> bool:
    """Return whether Keras' crossentropies compute by the logits of a tensor in place of it."""
    return hasattr(tensor, "_keras_logits")


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


def profiles_batches(callback: keras.callbacks.TensorBoard) -> bool:
    """Return whether a TensorBoard callback has a ``profile_batch`` other than 0."""
    return bool(vars(callback).get("_should_trace", True))


def learning_rate_attribute(optimizer: Any) -> Any:
    """Return the learning rate of an optimizer: a variable, a schedule or None."""
    return getattr(optimizer, "_learning_rate", None)


def skip_sum_over_replicas(optimizer: keras.optimizers.Optimizer) -> None:
    """Let an optimizer take gradients as sums over the replicas, which it would sum once more."""
    if not hasattr(optimizer, _SUM):
        raise WorkloadError(
            f"{type(optimizer).__name__} of Keras {keras.__version__} does not sum gradients as "
            "tune_tf knows it: use one replica"
        )
    setattr(optimizer, _SUM, _unchanged)


def _unchanged(pairs: Any) -> Any:
    return pairs
