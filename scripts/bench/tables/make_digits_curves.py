"""Trains every config of a grid on scikit-learn's digits, and writes their validation loss curves.

The table that it writes lies beside it, and is what ``search_quality.py`` looks up; it is made anew
only when the workload changes. Ten to twenty minutes on one CPU core.
"""

import argparse
import itertools
import json
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

import tune_tf
from tune_tf.workloads.digits import DigitsMLP

_NUM_EPOCHS = 27
_SPACE = {
    "optimizer": {"choice": ["adamw", "rmsprop", "sgd"]},
    "batch_size": {"choice": [32, 64, 128]},
    "width": {"logint": [16, 128]},
    "learning_rate": {"loguniform": [1e-4, 10**-0.5]},
    "dropout": {"uniform": [0.0, 0.45]},
}
# In the order that traces each program once: what makes a structure comes first.
_AXES: dict[str, list[Any]] = {
    "optimizer": ["adamw", "rmsprop", "sgd"],
    "batch_size": [32, 64, 128],
    "width": [16, 32, 64, 128],
    "learning_rate": [float(f"{10**exponent:.4g}") for exponent in np.arange(-4, -0.4, 0.25)],
    "dropout": [0.0, 0.15, 0.3, 0.45],
}
_SEED = 1


def _curves() -> np.ndarray:
    """Return the validation loss of each config after each epoch, ``[*axes, epoch]``."""
    trainable_class = tune_tf.trainable(DigitsMLP, seed=_SEED)
    trainable = None
    curves = []
    configs = [
        dict(zip(_AXES, values, strict=True)) for values in itertools.product(*_AXES.values())
    ]
    for number, config in enumerate(configs):
        if trainable is None or not trainable.reset(dict(config)):
            trainable = trainable_class(config=dict(config))
        curve = [float(trainable.train()["val_loss"]) for _ in range(_NUM_EPOCHS)]
        assert np.isfinite(curve).all(), f"{config} diverged: narrow the grid"
        curves.append(curve)
        if number % 100 == 0:
            print(f"{number} of {len(configs)}", flush=True)
    return np.array(curves).reshape(*(len(values) for values in _AXES.values()), _NUM_EPOCHS)


def main() -> None:
    """Train, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("digits_mlp.npz"))
    path = parser.parse_args().out
    logs = np.log(_curves())
    low, high = float(logs.min()), float(logs.max())
    np.savez_compressed(
        path,
        # 16 bits between the smallest and the largest: neighbours differ by 0.02 %.
        curves=np.round((logs - low) / (high - low) * 65535).astype(np.uint16),
        description=json.dumps(
            {
                "name": "digits_mlp",
                "source": "tune_tf.workloads.digits:DigitsMLP, 27 epochs, one seed",
                "metric": "val_loss",
                "mode": "min",
                "log_low": low,
                "log_high": high,
                "space": _SPACE,
                "axes": _AXES,
            }
        ),
    )
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
