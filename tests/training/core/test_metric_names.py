"""Names of metrics in the results of trials."""

import keras
import numpy as np
import pytest
from trials import Given, built, draw

from tune_tf.training.core.build import build_for_training

layers = keras.layers

DATA = draw(16)


@pytest.mark.parametrize(
    ("metric", "name"),
    [
        pytest.param(keras.metrics.AUC, "auc", id="object"),
        pytest.param(lambda: "auc", "auc", id="by name"),
        pytest.param(lambda: keras.metrics.BinaryIoU(), "binary_io_u", id="object of two words"),
    ],
)
def test_names_of_metrics_do_not_depend_on_what_was_built_before(metric, name, replicas_of):
    def build(config):
        model = keras.Sequential([keras.Input((6,)), layers.Dense(1, activation="sigmoid")])
        model.compile("sgd", "binary_crossentropy", metrics=[metric()])
        return model

    x, _ = DATA.train
    names = []
    for _ in range(3):
        model = built(Given(build, DATA), replicas_of(1))
        build_for_training(model, (x[:2], np.float32([[0], [1]])), replicas_of(1))
        names.append(set(model.get_metrics_result()))

    assert names == [{"loss", name}] * 3
