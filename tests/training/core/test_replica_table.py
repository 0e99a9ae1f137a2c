"""Optimizer, clipping, last batch, BatchNormalization, precision together: as on one device.

``test_exactness.py`` has more values of each, alone.
"""

import functools

import keras
import pytest
from guards import guarded
from pairwise import pairwise
from trials import Given, draw, furthest, run_fresh, run_keras_fit

pytestmark = pytest.mark.tf
layers, optimizers = keras.layers, keras.optimizers

BATCH, EPOCHS = 8, 3
OPTIMIZERS = {
    "momentum": functools.partial(optimizers.SGD, 0.1, momentum=0.9),
    "adam": functools.partial(optimizers.Adam, 0.01),
    "rmsprop": functools.partial(optimizers.RMSprop, 0.01, momentum=0.5),
    "lion": functools.partial(optimizers.Lion, 3e-4),
}
CLIPPING = {
    "unclipped": {},
    "clipnorm": {"clipnorm": 0.05},
    "global_clipnorm": {"global_clipnorm": 0.1},
    "clipvalue": {"clipvalue": 0.01},
}
NUM_ROWS = {"odd": 2 * BATCH + 5, "one_row": 2 * BATCH + 1}
PRECISION = {"float32": 1e-5, "mixed_bfloat16": 2e-2, "mixed_float16": 1e-2}
"""Tolerance by policy. Sums in half precision depend on their order: bfloat16 rounds to 1/256,
float16 to 1/2048, and optimizers that divide by the size of a gradient make small ones large."""

TABLE = pairwise(
    {
        "optimizer": list(OPTIMIZERS),
        "clipping": list(CLIPPING),
        "rows": list(NUM_ROWS),
        "batch_norm": [False, True],
        "precision": list(PRECISION),
        "num_replicas": [1, 2, 3],
        "micro_batches": [1, 2],
    },
    # Pieces of a batch have statistics of their own, by design.
    allowed=lambda row: not (row["batch_norm"] and row["micro_batches"] > 1),
)
GUARD = TABLE[13]


def classifier(row):
    """Return a builder of the model of a row of the table.

    No bias stands before BatchNormalization: its gradient is nothing but round-off, of which Adam
    and Lion make whole steps.
    """

    def build(config):
        policy = keras.config.dtype_policy()
        keras.config.set_dtype_policy(row["precision"])
        try:
            hidden = [layers.Dense(8, use_bias=False)]
            hidden += [layers.BatchNormalization()] * row["batch_norm"]
            model = keras.Sequential(
                [keras.Input((6,)), *hidden, layers.ReLU(), layers.Dense(3, dtype="float32")]
            )
            model.compile(
                OPTIMIZERS[row["optimizer"]](**CLIPPING[row["clipping"]]),
                keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                metrics=["accuracy"],
            )
        finally:
            keras.config.set_dtype_policy(policy)
        return model

    return build


def label(row):
    """Return a row's id."""
    return "-".join(
        [
            row["optimizer"],
            row["clipping"],
            row["rows"],
            "bn" * row["batch_norm"] or "no_bn",
            row["precision"],
            f"{row['num_replicas']}x{row['micro_batches']}",
        ]
    )


@pytest.mark.parametrize(
    "row",
    guarded(TABLE, [GUARD]),
    ids=label,
)
def test_replicas_give_the_numbers_of_plain_keras_on_one_device(row, replicas_of):
    workload = Given(classifier(row), draw(NUM_ROWS[row["rows"]], 11), batch_size=BATCH)
    replicas = replicas_of(row["num_replicas"])

    ours = run_fresh(
        workload,
        replicas,
        epochs=EPOCHS,
        synchronized_batch_norm=True,
        micro_batches=row["micro_batches"],
    )

    by_keras = run_keras_fit(workload, replicas_of(1), epochs=EPOCHS)
    assert furthest(ours, by_keras) <= PRECISION[row["precision"]]
