"""The models of KerasTuner's guides: each trains as it is, or is refused with what to write."""

import pytest

pytest.importorskip("keras_tuner")

import keras
import keras_tuner
import numpy as np
import tensorflow as tf
from hypermodels import workload_of
from keras import layers
from sklearn.ensemble import RandomForestClassifier

from tune_tf import Data, trainable
from tune_tf.errors import WorkloadError

pytestmark = [pytest.mark.tf, pytest.mark.slow]

ROWS = np.random.default_rng(0)
IMAGES = ROWS.random((13, 28, 28, 1), "float32")
CLASSES = np.eye(10, dtype="float32")[np.arange(13) % 10]
X, Y = ROWS.random((13, 10), "float32"), ROWS.random((13, 1), "float32")


def layers_in_a_loop(hp):
    model = keras.Sequential()
    model.add(layers.Flatten())
    for i in range(hp.Int("num_layers", 1, 3)):
        model.add(
            layers.Dense(
                units=hp.Int(f"units_{i}", min_value=32, max_value=512, step=32),
                activation=hp.Choice("activation", ["relu", "tanh"]),
            )
        )
    if hp.Boolean("dropout"):
        model.add(layers.Dropout(rate=0.25))
    model.add(layers.Dense(10, activation="softmax"))
    learning_rate = hp.Float("lr", min_value=1e-4, max_value=1e-2, sampling="log")
    model.compile(
        optimizer=keras.optimizers.Adam(learning_rate=learning_rate),
        loss="categorical_crossentropy",
        metrics=["accuracy"],
    )
    return model


class CroppingModel(keras_tuner.HyperModel):
    def build(self, hp):
        image_size = hp.Int("image_size", 10, 28)
        inputs = keras.Input(shape=(image_size, image_size))
        outputs = layers.Flatten()(inputs)
        outputs = layers.Dense(10, activation="softmax")(outputs)
        model = keras.Model(inputs, outputs)
        model.compile(optimizer="adam", loss="categorical_crossentropy", metrics=["accuracy"])
        return model

    def fit(self, hp, model, x, y, validation_data=None, **kwargs):
        if hp.Boolean("normalize"):
            x = layers.Normalization()(x)
        image_size = hp.get("image_size")
        cropped_x = x[:, :image_size, :image_size, :]
        if validation_data:
            x_val, y_val = validation_data
            validation_data = (x_val[:, :image_size, :image_size, :], y_val)
        return model.fit(
            cropped_x,
            y,
            shuffle=hp.Boolean("shuffle"),
            validation_data=validation_data,
            **kwargs,
        )


class CustomMetric(keras.metrics.Metric):
    def __init__(self, **kwargs):
        super().__init__(name="custom_metric", **kwargs)
        self.sum = self.add_weight(name="sum", initializer="zeros")
        self.count = self.add_weight(name="count", dtype=tf.int32, initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        values = tf.math.squared_difference(y_pred, y_true)
        count = tf.shape(y_true)[0]
        self.sum.assign_add(tf.reduce_sum(values))
        self.count.assign_add(count)

    def result(self):
        return self.sum / tf.cast(self.count, tf.float32)


def regressor(hp):
    units = hp.Int("units", 32, 128, 32)
    model = keras.Sequential([layers.Dense(units, activation="relu"), layers.Dense(1)])
    model.compile(
        optimizer="adam",
        loss="mean_squared_error",
        metrics=[keras.metrics.MeanAbsoluteError(), CustomMetric()],
    )
    return model


def of_limited_size(error):
    def build(hp):
        units_1, units_2 = hp.Int("units_1", 10, 40, step=10), hp.Int("units_2", 10, 30, step=10)
        model = keras.Sequential(
            [layers.Input((10,)), layers.Dense(units_1), layers.Dense(units_2)]
        )
        model.add(layers.Dense(1))
        model.compile(loss="mse")
        if model.count_params() > 900:
            raise error("Model too large!")
        return model

    return build


def returning(objective):
    class HyperRegressor(keras_tuner.HyperModel):
        def build(self, hp):
            return regressor(hp)

        def fit(self, hp, model, x, y, validation_data, **kwargs):
            model.fit(x, y, **kwargs)
            x_val, y_val = validation_data
            return objective(model.predict(x_val), y_val)

    return HyperRegressor()


def trained(hypermodel, x, y, config, **arguments):
    """Return the result of one epoch."""
    data = Data(train=(x[:9], y[:9]), validation=(x[9:], y[9:]))
    workload = workload_of(hypermodel, data, batch_size=4, **arguments)
    assert workload.space.parameters.keys() >= config.keys()
    trial = trainable(workload)(config=config)
    result = trial.train()
    trial.stop()
    return result


@pytest.mark.parametrize(
    ("hypermodel", "config"),
    [
        (
            layers_in_a_loop,
            {"num_layers": 2, "units_0": 64, "units_1": 32, "activation": "tanh", "lr": 1e-3},
        ),
        (CroppingModel(), {"image_size": 12, "normalize": True, "shuffle": False}),
    ],
    ids=["layers-in-a-loop", "tailored-training"],
)
def test_a_model_of_the_guides_trains_on_images(hypermodel, config):
    result = trained(hypermodel, IMAGES, CLASSES, config)
    assert np.isfinite(result["loss"])
    assert 0 <= result["val_accuracy"] <= 1


def test_built_in_and_custom_metrics_can_be_objectives():
    result = trained(regressor, X, Y, {"units": 32}, callbacks=[keras.callbacks.TerminateOnNaN()])
    assert result["val_custom_metric"] == pytest.approx(result["val_loss"], rel=1e-5)
    assert result["val_mean_absolute_error"] > 0


@pytest.mark.parametrize(
    "error",
    [ValueError, keras_tuner.errors.FailedTrialError, keras_tuner.errors.FatalError],
    ids=lambda error: error.__name__,
)
def test_a_build_may_refuse_some_configs(error):
    build = of_limited_size(error)
    assert np.isfinite(trained(build, X, Y, {"units_1": 10, "units_2": 10})["loss"])
    with pytest.raises(error, match="Model too large"):
        trained(build, X, Y, {"units_1": 40, "units_2": 30})


@pytest.mark.parametrize(
    "objective",
    [
        lambda predicted, y: np.mean(np.abs(predicted - y)),
        lambda predicted, y: {"metric_a": -np.mean(np.abs(predicted - y))},
    ],
    ids=["number", "dict"],
)
def test_an_objective_of_fit_itself_is_refused_with_where_it_belongs(objective):
    data = Data(train=(X, Y), validation=(X, Y))
    with pytest.raises(WorkloadError, match=r"to optimize belongs into compile\(metrics=\[...\]\)"):
        workload_of(returning(objective), data).space  # noqa: B018


def test_a_model_of_scikit_learn_is_refused_by_name():
    def forest(hp):
        return RandomForestClassifier(n_estimators=hp.Int("n", 10, 50))

    with pytest.raises(WorkloadError, match=r"compiled keras\.Model, not RandomForestClassifier"):
        trained(forest, X, Y, {"n": 10})
