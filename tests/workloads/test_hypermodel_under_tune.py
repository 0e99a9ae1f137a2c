"""An unmodified KerasTuner hypermodel as a sweep, compared with KerasTuner's own building."""

import json

import numpy as np
import pytest

pytest.importorskip("keras_tuner")

import keras
import keras_tuner
from hypermodels import Classifier
from inline_actors import inlined
from keras import layers
from ray import tune

from tune_tf import Data, Objective
from tune_tf.searchers import OptunaSearcher
from tune_tf.trainables import trainable
from tune_tf.training.seeds import derive_seed, epoch_order, seed_python_and_numpy
from tune_tf.workloads.digits import DigitsMLP
from tune_tf.workloads.keras_tuner.hypermodel import from_hypermodel

pytestmark = [pytest.mark.tf, pytest.mark.slow]

EPOCHS, SEED, NUM_TRIALS = 2, 5, 8


class Layers(keras.callbacks.Callback):
    """Writes down the layers of each model that is trained, in a line each."""

    def __init__(self, path):
        super().__init__()
        self._path = path

    def on_train_begin(self, logs=None):
        with open(self._path, "a") as file:  # noqa: PTH123
            file.write(json.dumps(layers_of(self.model)) + "\n")


def layers_of(model):
    """Return kind and width of each layer that has one."""
    kinds = {layers.Dense: "units", layers.Conv2D: "filters"}
    return [
        [type(layer).__name__, getattr(layer, kinds[type(layer)])]
        for layer in model.layers
        if type(layer) in kinds
    ]


@pytest.fixture(scope="module")
def digits():
    data = DigitsMLP().load_data({})
    return Data(train=data.train, validation=data.validation)


@pytest.fixture(scope="module")
def sweep(digits, tmp_path_factory):
    """Return the space, the trials and what each one's model was made of."""
    folder = tmp_path_factory.mktemp("sweep")
    workload = from_hypermodel(Classifier(), digits, callbacks=[Layers(f"{folder}/layers")])
    with inlined(folder / "session"):
        analysis = tune.run(
            trainable(workload, seed=SEED),
            search_alg=OptunaSearcher(workload.space, Objective("val_accuracy", "max"), seed=3),
            num_samples=NUM_TRIALS,
            max_concurrent_trials=1,
            stop={"training_iteration": EPOCHS},
            storage_path=f"{folder}/results",
            reuse_actors=True,
            trial_name_creator=lambda trial: (
                f"trial-{trial.trial_id}"
            ),  # no number: one seed for all
            verbose=0,
        )
    lines = (folder / "layers").read_text().splitlines()
    return workload.space, analysis.trials, [json.loads(line) for line in lines]


def by_keras_tuner(config):
    """Return KerasTuner's own container with the values of a config."""
    hps = keras_tuner.HyperParameters()
    hps.values = dict(config)
    return hps


def test_configs_hold_only_what_is_active(sweep):
    space, trials, _ = sweep
    assert {trial.config["model_type"] for trial in trials} == {"mlp", "cnn"}
    for trial in trials:
        config = trial.config
        expected = {"model_type", "optimizer", "learning_rate", "batch_size"}
        expected |= {"momentum"} if config["optimizer"] == "sgd" else set()
        expected |= (
            {"filters"}
            if config["model_type"] == "cnn"
            else {"num_layers", "units_0", "units_1", "units_2"}
        )
        assert set(config) == expected
        assert space.validate(config) == []


def test_each_model_has_the_layers_that_its_hyperparameters_ask_for(sweep):
    _, trials, made = sweep
    assert made == [layers_of(Classifier().build(by_keras_tuner(t.config))) for t in trials]
    for trial, (first, *_) in zip(trials, made, strict=True):
        width = trial.config.get("filters") or trial.config["units_0"]
        assert first == ["Conv2D" if "filters" in trial.config else "Dense", width]


def test_metrics_are_those_of_keras_tuners_model_trained_by_hand(sweep, digits):
    _, trials, _ = sweep
    for model_type in ("mlp", "cnn"):
        trial = next(each for each in trials if each.config["model_type"] == model_type)
        expected = trained_by_hand(trial, digits)
        reported = {name: trial.last_result[name] for name in expected}
        assert reported == pytest.approx(expected, rel=2e-5, abs=2e-5)


def trained_by_hand(trial, data):
    """Return the metrics of ``HyperModel.build`` and ``HyperModel.fit`` after the last epoch."""
    seed = derive_seed(SEED, 0)
    hypermodel, hps = Classifier(), by_keras_tuner(trial.config)
    seed_python_and_numpy(seed)
    model = hypermodel.build(hps)
    x, y = data.train
    for epoch in range(EPOCHS):
        order = epoch_order(seed, epoch, len(x))
        logs = hypermodel.fit(
            hps,
            model,
            np.take(x, order, axis=0),
            np.take(y, order, axis=0),
            validation_data=data.validation,
            shuffle=False,
            verbose=0,
        ).history
    return {name: values[0] for name, values in logs.items()}
