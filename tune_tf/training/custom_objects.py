"""What of a saved model is the user's own code, which a process must import before it loads it."""

import warnings
from collections.abc import Iterator
from typing import Any

import keras

_FUNCTIONS = (
    keras.activations,
    keras.losses,
    keras.metrics,
    keras.initializers,
    keras.regularizers,
    keras.constraints,
    keras.ops,
)


def custom_objects(model: keras.Model) -> tuple[str, ...]:
    """Return the names of classes and functions in a model that Keras alone does not know.

    In order of the alphabet; a lambda goes by ``lambda``.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what Keras cannot write is told when it is saved
        config = keras.saving.serialize_keras_object(model)
    return tuple(sorted(set(_custom(config))))


def _custom(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        name = node.get("class_name")
        if name in ("Lambda", "__lambda__"):
            yield "lambda"
        elif name == "function":
            function = str(node.get("config"))
            if not any(hasattr(module, function) for module in _FUNCTIONS):
                yield function
        elif name and not _is_of_keras(node):
            yield str(node.get("registered_name") or name)
        for value in node.values():
            yield from _custom(value)
    elif isinstance(node, list | tuple):
        for value in node:
            yield from _custom(value)


def _is_of_keras(node: dict[str, Any]) -> bool:
    """Whether Keras itself has the class; of a class of ``__main__`` it writes no module."""
    module = node.get("module")
    if module is None:
        return not node.get("registered_name")
    return module.split(".")[0] in ("keras", "builtins")
