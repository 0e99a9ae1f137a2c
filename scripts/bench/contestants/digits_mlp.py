"""Task of all contestants as written without tune_tf: a small perceptron on digits.

Rows, split, model and optimizer are those of ``tune_tf.workloads.digits:DigitsMLP``, which
``sweep_wall.py`` checks.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

Arrays = tuple[np.ndarray, np.ndarray]

WIDTHS = (32, 64, 128)
LEARNING_RATES = (1e-4, 1e-1)
WEIGHT_DECAYS = (1e-6, 1e-2)
BATCH_SIZE = 32


def load_rows() -> tuple[Arrays, Arrays]:
    """Return training and validation rows: images ``[rows, 8, 8, 1]`` and labels."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    x = (images / 16.0).astype(np.float32).reshape(-1, 8, 8, 1)
    y = labels.astype(np.int32)
    order = np.random.default_rng(0).permutation(len(x))
    num_test = num_validation = round(len(x) * 0.2)
    _, validation, train = np.split(order, [num_test, num_test + num_validation])
    return (x[train], y[train]), (x[validation], y[validation])


def build_model(config: Mapping[str, Any], *, steps_per_execution: int = 1) -> Any:
    """Return the compiled Keras model of a config."""
    import keras

    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Flatten(),
            keras.layers.Dense(config["width"], activation="relu"),
            keras.layers.Dropout(0.0),
            keras.layers.Dense(10),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.AdamW(
            learning_rate=config["learning_rate"], weight_decay=config["weight_decay"]
        ),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        steps_per_execution=steps_per_execution,
    )
    return model
