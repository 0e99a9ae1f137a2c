"""Losses and metrics of Keras that add up over the parts of a batch."""

import keras
import numpy as np
import pytest

from tune_tf.training.replicas.row_means import ROW_LOSSES, ROW_METRICS

pytestmark = pytest.mark.tf
losses, metrics = keras.losses, keras.metrics


def test_each_loss_and_metric_of_keras_is_known_to_add_up_or_not():
    assert (len(ROW_LOSSES), len(ROW_METRICS)) == (16, 37), "check those that Keras has added"


SETTINGS = {
    metrics.PrecisionAtRecall: {"recall": 0.5},
    metrics.RecallAtPrecision: {"precision": 0.5},
    metrics.SensitivityAtSpecificity: {"specificity": 0.5},
    metrics.SpecificityAtSensitivity: {"sensitivity": 0.5},
    metrics.IoU: {"num_classes": 4, "target_class_ids": [0, 2]},
    metrics.OneHotIoU: {"num_classes": 4, "target_class_ids": [0, 2]},
    metrics.MeanIoU: {"num_classes": 4},
    metrics.OneHotMeanIoU: {"num_classes": 4},
}
OF_CLASSES = {metrics.Accuracy, metrics.IoU, metrics.MeanIoU}


@pytest.mark.parametrize("kind", sorted(ROW_METRICS, key=str), ids=lambda kind: kind.__name__)
def test_a_metric_that_adds_up_is_that_of_its_parts(kind):
    rng = np.random.default_rng(0)
    labels, soft = rng.integers(0, 4, 6), rng.dirichlet(np.ones(4), 6).astype("float32")
    takes_labels = kind in OF_CLASSES or kind.__name__.startswith("Sparse")
    y_true = labels if takes_labels else np.eye(4, dtype="float32")[labels]
    y_pred = soft.argmax(-1) if kind in OF_CLASSES else soft
    whole, parts = (kind(**SETTINGS.get(kind, {})) for _ in range(2))

    whole.update_state(y_true, y_pred)
    parts.update_state(y_true[:2], y_pred[:2])
    parts.update_state(y_true[2:], y_pred[2:])
    np.testing.assert_allclose(whole.result(), parts.result(), rtol=1e-5)


@pytest.mark.parametrize("kind", sorted(ROW_LOSSES, key=str), ids=lambda kind: kind.__name__)
def test_a_loss_that_adds_up_is_the_mean_of_those_of_parts(kind):
    rng = np.random.default_rng(0)
    y_pred = rng.dirichlet(np.ones(4), (6, 5) if kind is losses.CTC else 6).astype("float32")
    y_true = rng.integers(0, 3, y_pred.shape[:1]) if "Sparse" in kind.__name__ else y_pred[::-1]
    if kind is losses.CategoricalGeneralizedCrossEntropy:
        y_true = rng.integers(0, 3, 6)
    if kind is losses.CTC:
        y_true = rng.integers(1, 3, (6, 2))
    loss = kind(q=0.5) if kind is losses.CategoricalGeneralizedCrossEntropy else kind()

    first, second = loss(y_true[:2], y_pred[:2]), loss(y_true[2:], y_pred[2:])
    assert float(loss(y_true, y_pred)) == pytest.approx(float(first * 2 + second * 4) / 6, rel=1e-5)
