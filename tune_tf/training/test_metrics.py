"""Metrics of a trained model on the test rows."""

import keras

from tune_tf.data import rows_of
from tune_tf.training.input.per_example import seen_by_model
from tune_tf.workload import Config, Data, Workload


def evaluate_test_rows(workload: Workload, config: Config, model: keras.Model) -> dict[str, float]:
    """Return the metrics on ``Data.test`` with the prefix ``test_``; empty unless it is arrays."""
    part = workload.load_data(config).test
    if not isinstance(part, tuple):
        return {}
    rows = rows_of(Data(part), floatx=keras.config.floatx()).train
    if not isinstance(rows, tuple):
        return {}
    x, y, *weights = seen_by_model(workload, config, rows, training=False)
    metrics = model.evaluate(
        x,
        y,
        sample_weight=weights[0] if weights else None,
        batch_size=workload.global_batch_size(config),
        verbose=0,
        return_dict=True,
    )
    return {f"test_{name}": float(value) for name, value in metrics.items()}
