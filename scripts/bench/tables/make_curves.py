"""Generator of the learning-curve tables: trains every config of a grid.

The tables that it writes lie beside it, and are what ``search_quality.py`` looks up; one is made
anew only when its workload changes. On one CPU core that is ten to twenty minutes for
``digits_mlp``, and half of that for ``breast_cancer_mlp``.
"""

import argparse
import itertools
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
from breast_cancer import BreastCancerMLP

import tune_tf
from tune_tf import Workload
from tune_tf.workloads.digits import DigitsMLP

_NUM_EPOCHS = 27
_SEED = 1


@dataclass(frozen=True)
class _Table:
    """Grid and workload of a table.

    Args:
        workload: Data and model.
        source: Where they are to be found.
        space: What a sweep searches, as in a sweep file.
        axes: Grid values by path, in the order that traces each program once: what makes a
            structure comes first.
        held_out: Whether nothing may be tuned on it.
    """

    workload: type[Workload]
    source: str
    space: Mapping[str, Any]
    axes: Mapping[str, list[Any]]
    held_out: bool = False

    def curves(self) -> np.ndarray:
        """Return the validation loss of each config after each epoch, ``[*axes, epoch]``."""
        trainable_class = tune_tf.trainable(self.workload, seed=_SEED)
        trainable = None
        curves = []
        configs = [
            dict(zip(self.axes, values, strict=True))
            for values in itertools.product(*self.axes.values())
        ]
        for number, config in enumerate(configs):
            if trainable is None or not trainable.reset(dict(config)):
                trainable = trainable_class(config=dict(config))
            curve = [float(trainable.train()["val_loss"]) for _ in range(_NUM_EPOCHS)]
            assert np.isfinite(curve).all(), f"{config} diverged: narrow the grid"
            curves.append(curve)
            if number % 100 == 0:
                print(f"{number} of {len(configs)}", flush=True)
        return np.array(curves).reshape(*map(len, self.axes.values()), _NUM_EPOCHS)


def _rates(low: float, high: float) -> list[float]:
    """Return four learning rates per decade between two exponents of ten, both included."""
    return [float(f"{10**exponent:.4g}") for exponent in np.arange(low, high + 0.1, 0.25)]


_TABLES = {
    "digits_mlp": _Table(
        DigitsMLP,
        "tune_tf.workloads.digits:DigitsMLP",
        {
            "optimizer": {"choice": ["adamw", "rmsprop", "sgd"]},
            "batch_size": {"choice": [32, 64, 128]},
            "width": {"logint": [16, 128]},
            "learning_rate": {"loguniform": [1e-4, 10**-0.5]},
            "dropout": {"uniform": [0.0, 0.45]},
        },
        {
            "optimizer": ["adamw", "rmsprop", "sgd"],
            "batch_size": [32, 64, 128],
            "width": [16, 32, 64, 128],
            "learning_rate": _rates(-4, -0.5),
            "dropout": [0.0, 0.15, 0.3, 0.45],
        },
    ),
    "breast_cancer_mlp": _Table(
        BreastCancerMLP,
        "scripts/bench/tables/breast_cancer.py:BreastCancerMLP",
        {
            "optimizer": {"choice": ["adam", "rmsprop", "sgd"]},
            "activation": {"choice": ["relu", "tanh"]},
            "batch_size": {"choice": [16, 64]},
            "width": {"logint": [4, 32]},
            "learning_rate": {"loguniform": [1e-4, 0.1]},
            "dropout": {"uniform": [0.0, 0.5]},
        },
        {
            "optimizer": ["adam", "rmsprop", "sgd"],
            "activation": ["relu", "tanh"],
            "batch_size": [16, 64],
            "width": [4, 8, 16, 32],
            "learning_rate": _rates(-4, -1),
            "dropout": [0.0, 0.25, 0.5],
        },
        held_out=True,
    ),
}


def main() -> None:
    """Train, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=_TABLES, help="which table")
    parser.add_argument("--out", type=Path, help="file to write; beside this one by default")
    arguments = parser.parse_args()
    path = arguments.out or Path(__file__).with_name(f"{arguments.name}.npz")
    table = _TABLES[arguments.name]
    logs = np.log(table.curves())
    low, high = float(logs.min()), float(logs.max())
    np.savez_compressed(
        path,
        # 16 bits between the smallest and the largest: neighbours differ by 0.02 %.
        curves=np.round((logs - low) / (high - low) * 65535).astype(np.uint16),
        description=json.dumps(
            {
                "name": arguments.name,
                "source": f"{table.source}, {_NUM_EPOCHS} epochs, one seed",
                "metric": "val_loss",
                "mode": "min",
                "log_low": low,
                "log_high": high,
                "space": table.space,
                "axes": table.axes,
                "held_out": table.held_out,
            }
        ),
    )
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
