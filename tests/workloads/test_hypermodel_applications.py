"""KerasTuner's ready hypermodels, each trained for an epoch on a few small images."""

import functools

import numpy as np
import pytest

pytest.importorskip("keras_tuner")

import keras
import keras_tuner
from keras_tuner import applications
from keras_tuner.src.applications import efficientnet

from tune_tf import Data, from_hypermodel, trainable
from tune_tf.errors import InvalidSettingsError, WorkloadError

pytestmark = [pytest.mark.tf, pytest.mark.slow]

IMAGES, CLASSES = {"input_shape": (32, 32, 3)}, {"classes": 2}
# With augment_layers above 0, its RandAugment creates variables in a graph, which fails in fit too.
AUGMENT = {"augment_layers": 0, "rotate": [0.1, 0.2], "translate_x": 0.1, "contrast": None}
HYPERMODELS = {
    "resnet": lambda: applications.HyperResNet(**IMAGES, **CLASSES),
    "xception": lambda: applications.HyperXception(**IMAGES, **CLASSES),
    "efficientnet": lambda: applications.HyperEfficientNet(
        **IMAGES,
        **CLASSES,
        augmentation_model=applications.HyperImageAugment(**IMAGES, **AUGMENT),
    ),
}


@pytest.fixture
def images():
    x = np.random.default_rng(0).random((8, 32, 32, 3), "float32")
    y = np.eye(2, dtype="float32")[np.arange(8) % 2]
    return Data(train=(x, y), validation=(x[:4], y[:4]))


@pytest.fixture
def without_downloads(monkeypatch):
    """Let EfficientNets begin with random weights instead of downloaded ones."""
    models = efficientnet.EFFICIENTNET_MODELS
    for name, model in list(models.items()):
        monkeypatch.setitem(models, name, functools.partial(model, weights=None))


@pytest.mark.usefixtures("without_downloads")
@pytest.mark.parametrize("make", HYPERMODELS.values(), ids=HYPERMODELS)
def test_a_ready_hypermodel_trains(make, images):
    hp = keras_tuner.HyperParameters()
    hp.Choice("pooling", ["avg", "max"])
    workload = from_hypermodel(
        make(), images, hyperparameters=hp, tune_new_entries=False, batch_size=4
    )
    assert list(workload.space.parameters) == ["pooling"]
    trial = trainable(workload)(config={"pooling": "max"})
    result = trial.train()
    trial.stop()
    assert np.isfinite(result["loss"])
    assert 0 <= result["val_accuracy"] <= 1


@pytest.mark.parametrize("kind", [applications.HyperResNet, applications.HyperXception])
def test_an_input_tensor_is_refused(kind, images):
    with pytest.raises(
        InvalidSettingsError, match=r"input_tensor .* give input_shape=\(32, 32, 3\)"
    ):
        from_hypermodel(kind(input_tensor=keras.Input((32, 32, 3)), **CLASSES), images)


def test_an_augmentation_alone_is_refused_before_a_trial(images):
    alone = applications.HyperImageAugment(**IMAGES)
    with pytest.raises(WorkloadError, match="does not compile its model: compile in build, or"):
        from_hypermodel(alone, images).space  # noqa: B018


@pytest.mark.filterwarnings("ignore:The model does not have any trainable weights")
def test_an_augmentation_trains_with_the_compile_arguments_of_a_tuner(images):
    data = Data(train=(images.train[0], images.train[0]))
    alone = applications.HyperImageAugment(**IMAGES, **AUGMENT)
    workload = from_hypermodel(alone, data, optimizer="sgd", loss="mse")
    config = {"factor_rotate": 0.2, "factor_translate_x": 0.1, "factor_translate_y": 0.0}
    trial = trainable(workload)(config=config)
    result = trial.train()
    trial.stop()
    assert result["loss"] > 0
