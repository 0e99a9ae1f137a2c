"""What splitting a batch over replicas, pieces or stages does to rows of the contract."""

import pytest
from exactness_cases import CASES

TOLERANCE = 1e-5
EQUAL = "equal"
REPLICAS, PIECES, STAGES = "2 replicas", "2 micro_batches", "2 stages"
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
    "MultiOptimizer": dict.fromkeys((*BOTH, STAGES), EQUAL),
    "layer that adds a loss": dict.fromkeys(BOTH, "adds a loss of the rows that it gets"),
    "layer that moves its own weight": dict.fromkeys(BOTH, r"\(Centers\) changes .* in its call"),
    "train_step reads the workload": {REPLICAS: EQUAL, PIECES: "takes whole batches"},
    "variable that a loss makes": {REPLICAS: r"CountingLoss.call \(.*users_code", PIECES: EQUAL},
    "variable that compute_loss makes": {REPLICAS: "CountingModel.compute_loss", PIECES: EQUAL},
    "variable that a regularizer makes": {REPLICAS: "CountingRegularizer", PIECES: EQUAL},
    "variable of a loss that build_model makes": dict.fromkeys(BOTH, EQUAL),
    "variable of a regularizer that build_model makes": dict.fromkeys(BOTH, EQUAL),
    "variable that train_step makes": {
        REPLICAS: "StepWithCount.weight .* creates a variable",
        PIECES: "takes whole batches",
    },
    "stateful GRU": {
        **{way: rf"gru \(GRU\) is stateful.*{way[2:]}" for way in (REPLICAS, PIECES)},
        STAGES: EQUAL,
    },
    "stateful LSTM": dict.fromkeys(BOTH, r"lstm \(LSTM\) is stateful"),
    "two models without a call that train one another": {REPLICAS: "critic_optimizer"},
    "model without a call": {REPLICAS: "Walks has no call", PIECES: "takes whole batches"},
}
"""By row and way: ``EQUAL``, or what a refusal says (a pattern)."""


def cells():
    """Yield a parameter for each row and way to split a batch: what is expected there."""
    for name, ways in SPLIT.items():
        for way, cell in ways.items():
            yield pytest.param(name, way, cell, id=f"{name}-{way}")
