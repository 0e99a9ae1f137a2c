"""What makes two compiled models one traced program."""

import hashlib
import json
import warnings
from collections.abc import Hashable
from typing import Any

import keras

from tune_tf.training.scalars import Scalar, masked


def structure_key(
    model: keras.Model, scalars: list[Scalar], vouched: Hashable, batch: Hashable
) -> str | None:
    """Return a key that is equal exactly for models which one traced program can serve.

    The key is derived from the model and its compile arguments as Keras serialises them, with the
    carried scalars, the learning rate and the seeds masked. A model with parts that may
    hide more than they serialise (own classes, functions, lambdas) has no key unless the user
    vouches for them. Automatic names must have been counted from zero (see ``build.py``).

    Args:
        model: Compiled and built.
        scalars: The scalars that the program will carry.
        vouched: What ``Workload.structure`` returned.
        batch: Shapes and types of the data, batch size, replicas: whatever else is traced in.
    """
    with masked(scalars), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = _serialised(model)
        if vouched is None and (config is None or _hides_something(config)):
            return None
        # A model that cannot be serialised may still be trained by parts that can.
        config = config or [_serialised(model.optimizer), _serialised(model.loss)]
    shapes = [(tuple(v.shape), str(v.dtype)) for v in model.variables]
    parts = [_masked_seeds(config), repr(vouched), repr(batch), shapes, keras.config.floatx()]
    text = json.dumps(parts, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _serialised(part: Any) -> Any:
    """Return what Keras writes of a part of a model, or None where it cannot."""
    try:
        return keras.saving.serialize_keras_object(part)
    except Exception:  # noqa: BLE001  user code in get_config may raise anything
        return None


def _hides_something(config: Any) -> bool:
    if isinstance(config, dict):
        if "class_name" in config and "config" in config:
            name, module = config["class_name"], config.get("module")
            if name in ("function", "Lambda", "__lambda__", "__typespec__"):
                return True
            if not _is_keras(module) or (module is None and config.get("registered_name")):
                return True
        if config.keys() == {"value"}:  # how Keras writes a lambda as activation: its bytecode
            return True
        return any(_hides_something(value) for value in config.values())
    if isinstance(config, list | tuple):
        return any(_hides_something(value) for value in config)
    return False


def _is_keras(module: str | None) -> bool:
    return module is None or module == "keras" or module.startswith(("keras.", "builtins"))


def _masked_seeds(node: Any) -> Any:
    """Mask what a trial brings along as a variable: its seeds and a plain learning rate."""
    if isinstance(node, dict):
        return {
            key: "masked"
            if key == "seed" or (key == "learning_rate" and isinstance(value, float))
            else _masked_seeds(value)
            for key, value in node.items()
        }
    if isinstance(node, list | tuple):
        return [_masked_seeds(value) for value in node]
    return node
