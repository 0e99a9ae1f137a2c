"""What splitting a batch over replicas, pieces or stages does to rows of the contract."""

TOLERANCE = 1e-5
EQUAL = "equal"

WAYS = {
    "2 replicas": (2, 1, 1),
    "3 replicas": (3, 1, 1),
    "2 pieces": (1, 1, 2),
    "2 replicas of 3 pieces": (2, 1, 3),
    "2 stages": (1, 2, 1),
    "2 stages, 2 pieces": (1, 2, 2),
    "2 replicas of 2 stages": (2, 2, 1),
}
"""Replicas, stages and micro-batches by name."""
REPLICAS, THREE, PIECES, REPLICAS_OF_PIECES, STAGES, STAGES_OF_PIECES, GRID = WAYS
SERVER = "a parameter server"
BOTH, ALL = (REPLICAS, PIECES), tuple(WAYS)

ROWS_IN_ALL_WAYS = (
    "last batch of one row",
    "two inputs, two outputs, uneven",
    "two outputs, last batch of one row",
    "sparse gradients, clipped",
    "two outputs, one with Dice",
    "masked steps with weights",
    "Dice",
)
ROWS_IN_BOTH_WAYS = (
    "class_weight",
    "sample_weight",
    "two inputs, two outputs",
    "list of inputs",
    "output in a list",
    "output without an axis of its own",
    "metric with several results",
    "metric that is no sum",
    "metric of a whole batch",
    "metrics that are no means",
    "axis of CosineSimilarity",
    "Masking of the loss",
    "mask of an embedding",
    "shared layer",
    "averaged weights",
    "numbers of SGD",
    "numbers of AdamW",
    "numbers of RMSprop",
    "numbers of CosineDecay",
    "numbers of L2",
    "loss that ignores a class",
    "probabilities that round to 0",
    "loss that is a sum",
    "mean by sample weight",
    "loss function of rows",
    "loss function of the batch",
    "own loss",
    "own loss on masked rows",
    "own regularizer",
    "compute_loss of an instance",
    "layer with weights alone",
    "variable that a metric makes",
    "variable of a loss that build_model makes",
    "number that compute_metrics adds",
)

ROWS_WITH_A_SERVER = (
    "batch normalization",
    "numbers of Dropout",
    "numbers of CosineDecay",
    "accumulated gradients, averages overwrite weights, constraint, Dice",
    "sparse gradients, clipped",
    "MultiOptimizer",
    "nested model",
    "sample_weight",
    "train_step of the workload",
)

SPLIT: dict[str, dict[str, str]] = {
    **{name: dict.fromkeys(ALL, EQUAL) for name in ROWS_IN_ALL_WAYS},
    **{name: dict.fromkeys(BOTH, EQUAL) for name in ROWS_IN_BOTH_WAYS},
    **{
        name: {REPLICAS: "Adam.? with gradient_accumulation_steps", PIECES: EQUAL}
        for name in ("accumulated gradients, clipped", "sparse gradients, accumulated")
    },
    "accumulated gradients, averages overwrite weights, constraint, Dice": {
        REPLICAS: "gradient_accumulation_steps=3, ema_overwrite_frequency=2",
        **dict.fromkeys((PIECES, STAGES, STAGES_OF_PIECES, GRID), EQUAL),
    },
    "MultiOptimizer": dict.fromkeys((*BOTH, STAGES), EQUAL),
    "batch normalization": {REPLICAS: EQUAL},
    "LearningRateScheduler": {REPLICAS: EQUAL},
    "spectral normalization": dict.fromkeys(BOTH, "changes vector_u in its call"),
    "penalty by a function": dict.fromkeys(BOTH, r"dense_?\d* \(Dense\) adds a loss"),
    "layer that adds a loss": dict.fromkeys(BOTH, "adds a loss of the rows that it gets"),
    "layer that moves its own weight": dict.fromkeys(BOTH, r"\(Centers\) changes .* in its call"),
    "variable of TensorFlow moved in call": dict.fromkeys(
        BOTH, r"counts \(Counts\) changes Variable.* in its call"
    ),
    "loss of a tensor in the model": dict.fromkeys(
        BOTH, "a loss takes .* from inside the model's call"
    ),
    "own train_step, uneven, clipped": {
        **dict.fromkeys((REPLICAS, THREE), EQUAL),
        STAGES: r"has a custom train_step.*kind 'mirrored'",
    },
    "train_step of the workload": {
        **dict.fromkeys((REPLICAS, THREE), EQUAL),
        STAGES: r"has a custom train_step.*kind 'mirrored'",
    },
    "train_step reads the workload": {REPLICAS: EQUAL, PIECES: "takes whole batches"},
    "train_step returns a mean": {REPLICAS: EQUAL},
    "variable that a loss makes": {REPLICAS: r"CountingLoss.call \(.*users_losses", PIECES: EQUAL},
    "variable that compute_loss makes": {REPLICAS: "CountingModel.compute_loss", PIECES: EQUAL},
    "variable that train_step makes": {
        REPLICAS: "StepWithCount.weight .* creates a variable",
        PIECES: "takes whole batches",
    },
    "stateful GRU": {
        REPLICAS: r"gru \(GRU\) is stateful.*2 replicas",
        PIECES: r"gru \(GRU\) is stateful.*2 micro_batches",
        STAGES: EQUAL,
    },
    "two models without a call that train one another": {REPLICAS: "critic_optimizer"},
    "model without a call": {REPLICAS: "Walks has no call", PIECES: "takes whole batches"},
}
"""By row and way: ``EQUAL``, or what a refusal says (a pattern)."""

SPLIT["probabilities that round to 0"][STAGES_OF_PIECES] = EQUAL
for _name in ROWS_WITH_A_SERVER:
    SPLIT[_name] = SPLIT.get(_name, {}) | {SERVER: EQUAL}
SPLIT["LossScaleOptimizer"] = {SERVER: "mixed_bfloat16 in place of mixed_float16"}

CELLS = {f"{name}-{way}": (name, way) for name, ways in SPLIT.items() for way in ways}
GUARDS = (
    f"last batch of one row-{THREE}",
    f"masked steps with weights-{REPLICAS_OF_PIECES}",
    f"two outputs, one with Dice-{GRID}",
    f"metric that is no sum-{REPLICAS}",
    f"probabilities that round to 0-{REPLICAS}",
    f"layer that moves its own weight-{PIECES}",
    f"loss of a tensor in the model-{REPLICAS}",
    f"own train_step, uneven, clipped-{REPLICAS}",
    f"batch normalization-{SERVER}",
)
"""The cells that guard every change."""
