"""Generator of the learning-curve tables: trains every config of a grid.

The tables that it writes lie beside it, and are what ``search_quality.py`` looks up; one is made
anew only when its workload changes. One takes five to twenty minutes on a CPU core.
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
from table_workloads import (
    BreastCancerMLP,
    DiabetesRegression,
    DigitsCNN,
    GeneratedText,
    UnbalancedRows,
    WrongLabels,
)

import tune_tf
from tune_tf import Workload
from tune_tf.workloads.digits import DigitsMLP

_NUM_EPOCHS = 27
_SEED = 1
_LEAST = 1e-3  # an area under a curve may be 0, which has no logarithm
_MOST = 100.0  # of a run that diverged


@dataclass(frozen=True)
class _Table:
    """Grid and workload of a table.

    Args:
        workload: Data and model.
        metric: What the curves show.
        mode: Whether it is to be smallest or largest.
        space: What a sweep searches, as in a sweep file.
        axes: Grid values by path, in the order that traces each program once: what makes a
            structure comes first.
        held_out: Whether nothing may be tuned on it.
    """

    workload: type[Workload]
    space: Mapping[str, Any]
    axes: Mapping[str, list[Any]]
    metric: str = "val_loss"
    mode: str = "min"
    held_out: bool = False

    @property
    def source(self) -> str:
        """Where the workload is to be found."""
        module = self.workload.__module__
        path = module if module.startswith("tune_tf.") else f"scripts/bench/tables/{module}.py"
        return f"{path}:{self.workload.__name__}"

    def curves(self) -> np.ndarray:
        """Return the metric of each config after each epoch, ``[*axes, epoch]``."""
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
            curve = [float(trainable.train()[self.metric]) for _ in range(_NUM_EPOCHS)]
            curves.append(np.clip(np.nan_to_num(curve, nan=_MOST), _LEAST, _MOST))
            if number % 100 == 0:
                print(f"{number} of {len(configs)}", flush=True)
        return np.array(curves).reshape(*map(len, self.axes.values()), _NUM_EPOCHS)


def _rates(low: float, high: float) -> list[float]:
    """Return four learning rates per decade between two exponents of ten, both included."""
    return [float(f"{10**exponent:.4g}") for exponent in np.arange(low, high + 0.1, 0.25)]


_TABLES = {
    "digits_mlp": _Table(
        DigitsMLP,
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
    "digits_cnn": _Table(
        DigitsCNN,
        {
            "optimizer": {"choice": ["adam", "sgd"]},
            "kernel": {"choice": [3, 5]},
            "filters": {"logint": [2, 16]},
            "batch_size": {"choice": [16, 64]},
            "learning_rate": {"loguniform": [1e-4, 0.1]},
            "dropout": {"uniform": [0.0, 0.6]},
        },
        {
            "optimizer": ["adam", "sgd"],
            "kernel": [3, 5],
            "filters": [2, 4, 8, 16],
            "batch_size": [16, 64],
            "learning_rate": _rates(-4, -1),
            "dropout": [0.0, 0.2, 0.4, 0.6],
        },
    ),
    "diabetes_regression": _Table(
        DiabetesRegression,
        {
            "optimizer": {"choice": ["adam", "sgd"]},
            "num_layers": {"int": [1, 3]},
            "width": {"logint": [8, 128]},
            "batch_size": {"choice": [16, 64]},
            "learning_rate": {"loguniform": [1e-4, 10**-1.5]},
            "l2": {"loguniform": [1e-4, 0.1]},
            "dropout": {"uniform": [0.0, 0.5]},
        },
        {
            "optimizer": ["adam", "sgd"],
            "num_layers": [1, 2, 3],
            "width": [8, 32, 128],
            "batch_size": [16, 64],
            "learning_rate": _rates(-4, -1.5),
            "l2": [1e-4, 10**-2.5, 1e-1],
            "dropout": [0.0, 0.25, 0.5],
        },
        metric="val_mse",
    ),
    "wrong_labels": _Table(
        WrongLabels,
        {
            "width": {"logint": [16, 512]},
            "batch_size": {"choice": [16, 64]},
            "learning_rate": {"loguniform": [1e-4, 10**-1.5]},
            "weight_decay": {"loguniform": [1e-3, 10.0]},
            "dropout": {"uniform": [0.0, 0.8]},
        },
        {
            "width": [16, 64, 256],
            "batch_size": [16, 64],
            "learning_rate": _rates(-4, -1.5),
            "weight_decay": [1e-3, 1e-2, 1e-1, 1.0, 10.0],
            "dropout": [0.0, 0.2, 0.4, 0.6, 0.8],
        },
    ),
    "generated_text": _Table(
        GeneratedText,
        {
            "optimizer": {"choice": ["adam", "rmsprop", "sgd"]},
            "pooling": {"choice": ["average", "largest"]},
            "units": {"logint": [2, 32]},
            "batch_size": {"choice": [16, 64]},
            "learning_rate": {"loguniform": [1e-4, 0.1]},
            "dropout": {"uniform": [0.0, 0.5]},
        },
        {
            "optimizer": ["adam", "rmsprop", "sgd"],
            "pooling": ["average", "largest"],
            "units": [2, 8, 32],
            "batch_size": [16, 64],
            "learning_rate": _rates(-4, -1),
            "dropout": [0.0, 0.25, 0.5],
        },
        held_out=True,
    ),
    "unbalanced_rows": _Table(
        UnbalancedRows,
        {
            "optimizer": {"choice": ["adam", "sgd"]},
            "width": {"logint": [8, 64]},
            "batch_size": {"choice": [32, 128]},
            "positive_weight": {"loguniform": [1.0, 16.0]},
            "learning_rate": {"loguniform": [1e-4, 0.1]},
            "dropout": {"uniform": [0.0, 0.5]},
        },
        {
            "optimizer": ["adam", "sgd"],
            "width": [8, 32, 64],
            "batch_size": [32, 128],
            "positive_weight": [1.0, 4.0, 16.0],
            "learning_rate": _rates(-4, -1),
            "dropout": [0.0, 0.25, 0.5],
        },
        metric="val_auc_pr",
        mode="max",
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
                "metric": table.metric,
                "mode": table.mode,
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
