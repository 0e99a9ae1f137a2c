"""Rows that a pipeline changes anew in every epoch."""

import keras
import pytest
import tensorflow as tf
from streams import Noisy, as_it_is, noisy, without_dropout
from trials import Given, begin, draw, furthest, run_fresh

from tune_tf.data import Pipeline
from tune_tf.errors import WorkloadError
from tune_tf.training.core.loop import GraphLoop
from tune_tf.training.input.stream import Stream
from tune_tf.workload import Data

pytestmark = pytest.mark.tf
layers = keras.layers


@pytest.mark.parametrize(
    ("settings", "num"),
    [
        pytest.param({"map": as_it_is}, 1, id="mapped"),
        pytest.param({}, 2, id="plain, two replicas", marks=pytest.mark.slow),
    ],
)
def test_rows_are_augmented_as_where_the_model_is(replicas_of, settings, num):
    data = draw(37, 19)
    ahead = Data(train=Pipeline(data.train, augment=noisy, **settings), validation=data.validation)
    on_device = run_fresh(Noisy(without_dropout, data), replicas_of(num))

    assert furthest(run_fresh(Given(without_dropout, ahead), replicas_of(num)), on_device) < 1e-5


def test_the_form_that_augment_gives_is_what_a_model_is_built_by(replicas_of):
    def cropped(row, seed):
        return row[0][:3], row[1]

    def smaller(config):
        model = keras.Sequential([layers.Dense(3)])
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model

    workload = Given(smaller, Data(train=Pipeline(draw(20).train, augment=cropped)))
    loop = begin(GraphLoop(replicas_of(1)), workload)
    loop.epoch()

    assert loop.trial.program.model.layers[0].kernel.shape == (3, 3)


@pytest.mark.parametrize(
    ("augment", "name", "message"),
    [
        (lambda row, seed: row[0], "train", r"augment of Data\.train must return a row"),
        (
            lambda row, seed: (row[0] + tf.random.uniform([6]), row[1]),
            "train",
            "uses RandomUniform.*stateless",
        ),
        (noisy, "validation", r"Data\.validation has augment.*leave augment out"),
        (noisy, "test", r"Data\.test has augment.*leave augment out"),
    ],
    ids=["no row", "a state of its own", "validation", "test"],
)
def test_an_augment_that_cannot_be_is_refused(augment, name, message):
    with pytest.raises(WorkloadError, match=message):
        Stream(Pipeline(draw(20).train, augment=augment), name)
