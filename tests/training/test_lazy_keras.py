"""Keras without what only its plots and its wrappers for scikit-learn need."""

import importlib
import subprocess
import sys

import pytest

from tune_tf.training import SELDOM_USED

pytestmark = pytest.mark.tf

TRAIN = """
import sys
import tempfile
from tune_tf import Workload, Data, trainable
import numpy as np

class Plain(Workload):
    def load_data(self, config):
        return Data(train=(np.ones((8, 2)), np.ones(8)))
    def build_model(self, config):
        import keras
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", metrics=["mae"])
        return model

trial = trainable(Plain)(config={})
trial.train()
trial.save(tempfile.mkdtemp())
trial.stop()
assert not {"matplotlib", "sklearn"} & set(sys.modules)

import keras
wrapped = keras.wrappers.SKLearnRegressor(Plain().build_model({}))
assert wrapped.fit(np.ones((8, 2)), np.ones(8)).predict(np.ones((1, 2))).shape
assert callable(keras.visualization.plot_image_gallery)
assert {"matplotlib", "sklearn"} <= set(sys.modules)
"""


@pytest.mark.slow
def test_a_trial_loads_neither_and_has_both_where_it_uses_them():
    done = subprocess.run([sys.executable, "-c", TRAIN], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", sorted(SELDOM_USED))
def test_keras_has_a_module_of_that_name(name):
    assert importlib.import_module(name).__name__ == name
