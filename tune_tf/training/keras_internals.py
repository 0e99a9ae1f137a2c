"""Private parts of Keras and TensorFlow that training uses: each is named here and nowhere else."""

import contextlib
import random
from collections.abc import Iterator, Sequence
from typing import Any

import keras
from keras.src.random import seed_generator
from tensorflow.python.framework import ops as tensorflow_ops

# Attributes that no trace depends on: bookkeeping of their construction, the tensors and functions
# that earlier calls left, and what follows from other attributes.
_OF_ANY = frozenset(("_tracker", "_lock"))
_OF_VARIABLES = _OF_ANY | {"_value", "_initializer"}
_OF_OPTIMIZERS = _OF_ANY | {
    *("_trainable_variables_indices", "_distribution_strategy"),
    *("_exclude_from_weight_decay", "_exclude_from_weight_decay_cache"),
}
_OF_LAYERS = _OF_ANY | {
    *("_tracked", "_auto_config", "_called", "_path", "_parent_path", "_build_shapes_dict"),
    *("build", "quantize", "_inbound_nodes", "_outbound_nodes", "_call_signature"),
    *("_losses", "_loss_ids", "_losses_override", "call_signature_parameters"),
    *("_call_context_args", "_call_has_context_arg"),
    *("_saved_model_inputs_spec", "_saved_model_arg_spec"),
}
_OF_MODELS = _OF_LAYERS | {
    *(
        "_compile_config",
        "stop_training",
        "history",
        "_compiled_trainable_state",
        "_distribute_strategy",
    ),
    *("train_function", "test_function", "predict_function"),
    *("_nodes", "_nodes_by_depth", "_operations_by_depth"),
}
_SEEDS = ("seed", "_init_seed", "_initial_seed")
_BUILDING = frozenset(("__init__", "build", "get_config", "from_config"))
_RandomInitializer: Any = next(
    base for base in keras.initializers.RandomNormal.__mro__ if base.__name__ == "RandomInitializer"
)


@contextlib.contextmanager
def own_gradients_forgotten() -> Iterator[None]:
    """Let TensorFlow forget the custom gradients of what is traced meanwhile.

    Its registry keeps each for ever, and with it the whole graph: some megabytes a trace. Keras'
    optimizers leave one, and so does every ``silu``. They are used while a graph is traced only.
    """
    registry = getattr(tensorflow_ops.gradient_registry, "_registry", {})
    before = set(registry)
    try:
        yield
    finally:
        for name in [n for n in registry if n.startswith("CustomGradient-") and n not in before]:
            del registry[name]


def bookkeeping_attributes(owner: Any) -> frozenset[str]:
    """Return the attributes of a Keras object that no trace depends on."""
    if isinstance(owner, keras.Variable):
        return _OF_VARIABLES
    if isinstance(owner, keras.Model):
        return _OF_MODELS
    if isinstance(owner, keras.Operation):
        return _OF_LAYERS
    if isinstance(owner, keras.optimizers.Optimizer):
        return _OF_OPTIMIZERS
    return _OF_ANY


def seed_attributes(owner: Any) -> tuple[str, ...]:
    """Return the attributes of a Keras object that only say what its variables begin with."""
    if isinstance(owner, keras.random.SeedGenerator):
        return _SEEDS
    if isinstance(owner, keras.Layer) and _is_of_keras(type(owner)):
        generators = (v for v in vars(owner).values() if isinstance(v, keras.random.SeedGenerator))
        return _SEEDS if any(generators) else ()
    return ()


def seeds_of_weights(owner: Any, attribute: str) -> tuple[str, ...]:
    """Return the attributes of an initializer that only say what variables begin with.

    Args:
        owner: A Keras object that has the initializer.
        attribute: By this attribute, which a layer of a user's own may also use in a call.
    """
    if not isinstance(vars(owner)[attribute], _RandomInitializer):
        return ()
    functions = (
        function
        for kind in type(owner).__mro__
        if not _is_of_keras(kind)
        for name, function in vars(kind).items()
        if name not in _BUILDING
    )
    used = (getattr(function, "__code__", None) for function in functions)
    return () if any(code is not None and attribute in code.co_names for code in used) else _SEEDS


def _is_of_keras(kind: type) -> bool:
    return kind.__module__.startswith("keras.")


def global_seed_generator() -> keras.random.SeedGenerator:
    """Return what ``keras.random`` draws by in this thread where it is given no seed."""
    state = random.getstate()  # the first call draws a seed
    generator = seed_generator.global_seed_generator()
    random.setstate(state)
    return generator


def calls_in_order(model: Any) -> Iterator[tuple[Any, ...]]:
    """Return the calls of a functional model in the order in which it makes them.

    Args:
        model: Any Keras object; one without a graph has no calls.

    Returns:
        Tuples ``(operation, args, kwargs, outputs)`` with symbolic tensors.
    """
    by_depth = vars(model).get("_nodes_by_depth") or {}
    for depth in sorted(by_depth, reverse=True):
        for node in by_depth[depth]:
            arguments = node.arguments
            yield node.operation, arguments.args, arguments.kwargs, node.outputs


def without_weight_decay(optimizer: Any, variables: Sequence[Any]) -> list[int]:
    """Return which of some variables ``optimizer.exclude_from_weight_decay`` was given."""
    keys = getattr(optimizer, "_exclude_from_weight_decay", None)
    if not keys:
        return []
    return [
        number
        for number, variable in enumerate(variables)
        if isinstance(variable, keras.Variable) and optimizer._var_key(variable) in keys  # noqa: SLF001
    ]


def profiles_batches(callback: keras.callbacks.TensorBoard) -> bool:
    """Return whether ``profile_batch`` is not 0."""
    return bool(vars(callback).get("_should_trace", True))
