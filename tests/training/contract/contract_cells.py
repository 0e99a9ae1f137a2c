"""What splitting a batch over replicas, pieces or stages does to rows of the contract."""

import pytest
from exactness_cases import CASES

TOLERANCE = 1e-5
EQUAL, WRONG = "equal", "wrong"
REPLICAS, PIECES, STAGES = "2 replicas", "2 pieces", "2 stages"
BOTH = (REPLICAS, PIECES)

SPLIT: dict[str, dict[str, str]] = {
    **{
        name: dict.fromkeys((REPLICAS,), EQUAL)
        for name, case in CASES.items()
        if case.replicas and not case.weights_only
    },
    "SGD with momentum, one row over": dict.fromkeys((REPLICAS, "3 replicas", STAGES), EQUAL),
    "two inputs, two outputs, uneven": dict.fromkeys((REPLICAS, "3 replicas", STAGES), EQUAL),
    "own train_step, uneven, clipped": dict.fromkeys((REPLICAS, "3 replicas"), EQUAL),
    **{
        name: dict.fromkeys(BOTH, EQUAL)
        for name in (
            "class_weight",
            "sample_weight",
            "two inputs, two outputs",
            "output in a list",
            "metric with several results",
            "mask of an embedding",
            "shared layer",
            "MultiOptimizer",
            "numbers of AdamW",
            "numbers of CosineDecay",
            "loss function of rows",
            "own loss",
            "own loss on masked rows",
            "own metric",
            "own regularizer",
            "variable that a metric makes",
            "number that compute_metrics adds",
        )
    },
    **{
        name: dict.fromkeys(BOTH, EQUAL)
        for name in (
            "loss function of the batch",
            "Dice",
            "Masking of the loss",
            "metric of a whole batch",
        )
    },
    "layer that adds a loss": dict.fromkeys(BOTH, "adds a loss of the rows that it gets"),
    "layer that moves its own weight": dict.fromkeys(BOTH, r"\(Centers\) changes .* in its call"),
    "train_step reads the workload": {REPLICAS: EQUAL, PIECES: "takes whole batches"},
    # Replicas raise an error of TensorFlow's that names nothing.
    "variable that a loss makes": {REPLICAS: WRONG, PIECES: EQUAL},
    "variable that compute_loss makes": {REPLICAS: WRONG, PIECES: EQUAL},
    # Wrong numbers with pieces: the variable moves more often than once a batch.
    "variable that a regularizer makes": dict.fromkeys(BOTH, WRONG),
    "variable that train_step makes": {REPLICAS: WRONG, PIECES: "takes whole batches"},
    # Keras' own error, which does not name the replicas
    "stateful GRU": dict.fromkeys(BOTH, WRONG),
}
"""By row and way: ``EQUAL``, ``WRONG`` where it should be, or what a refusal says (a pattern)."""


def cells():
    """Yield a parameter for each row and way to split a batch: what is expected there."""
    for name, ways in SPLIT.items():
        for way, cell in ways.items():
            marks = pytest.mark.xfail(strict=True) if cell == WRONG else ()
            yield pytest.param(name, way, cell, id=f"{name}-{way}", marks=marks)
