"""The optimizer that a config names."""

from typing import Any

from tune_tf.workload import Config


def make_optimizer(config: Config) -> Any:
    """Return the optimizer that a config names.

    Reads ``optimizer`` (sgd, adam, adamw or rmsprop; default adam), ``learning_rate`` (1e-3),
    ``momentum`` (0; sgd and rmsprop only), ``weight_decay`` (0) and ``clipnorm`` (none).

    Raises:
        ValueError: The name is none of the four.
    """
    import keras

    name = config.get("optimizer", "adam")
    arguments: dict[str, Any] = {"learning_rate": float(config.get("learning_rate", 1e-3))}
    if config.get("weight_decay"):
        arguments["weight_decay"] = float(config["weight_decay"])
    if config.get("clipnorm"):
        arguments["clipnorm"] = float(config["clipnorm"])
    if name in ("sgd", "rmsprop"):
        arguments["momentum"] = float(config.get("momentum", 0.0))
    optimizers = {
        "sgd": keras.optimizers.SGD,
        "adam": keras.optimizers.Adam,
        "adamw": keras.optimizers.AdamW,
        "rmsprop": keras.optimizers.RMSprop,
    }
    if name not in optimizers:
        raise ValueError(f"optimizer must be one of {', '.join(optimizers)}, not {name!r}")
    return optimizers[name](**arguments)
