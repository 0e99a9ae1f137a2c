"""The data sets of Keras."""

import numpy as np
import pytest
from keras import datasets, layers

from tune_tf.errors import InvalidSettingsError, WorkloadError
from tune_tf.workloads.keras_datasets import KerasDatasetModel

REVIEWS = np.array([[5, 6, 7], [8], [9] * 5] * 10, object), np.array([0, 1, 1] * 10)
DIGITS = np.arange(40 * 64, dtype=np.uint8).reshape(40, 8, 8), np.arange(40, dtype=np.uint8) % 4
HOUSES = np.ones((40, 3), np.float32), np.linspace(0, 1, 40)


def test_the_test_rows_of_a_data_set_stay_and_training_rows_are_drawn(monkeypatch):
    monkeypatch.setattr(datasets.mnist, "load_data", lambda: (DIGITS, DIGITS))
    workload = KerasDatasetModel(name="mnist", max_rows=30)
    data = workload.load_data({})

    parts = [(x.shape, str(x.dtype), len(y)) for x, y in (data.train, data.validation, data.test)]
    assert parts == [((24, 8, 8), "uint8", 24), ((6, 8, 8), "uint8", 6), ((40, 8, 8), "uint8", 40)]
    assert workload.build_model({"filters": 2}).output_shape == (None, 4)


def test_texts_are_the_last_words_of_a_review(monkeypatch):
    monkeypatch.setattr(datasets.imdb, "load_data", lambda num_words: (REVIEWS, REVIEWS))
    workload = KerasDatasetModel(name="imdb", max_length=4, num_words=10)
    x, y = workload.load_data({}).test

    assert x[:3].tolist() == [[0, 5, 6, 7], [0, 0, 0, 8], [9, 9, 9, 9]]
    assert y[:3].tolist() == [0, 1, 1]
    model = workload.build_model({"embedding_dim": 3})
    assert any(isinstance(each, layers.Embedding) for each in model.layers)
    assert model.predict(x, verbose=0).shape == (30, 2)


def test_houses_have_prices(monkeypatch):
    monkeypatch.setattr(datasets.california_housing, "load_data", lambda: (HOUSES, HOUSES))
    assert KerasDatasetModel(name="california_housing").build_model({}).loss == "mse"


def test_what_the_loader_says_is_told(monkeypatch):
    def refuse():
        raise OSError("out of tape")

    monkeypatch.setattr(datasets.cifar10, "load_data", refuse)
    workload = KerasDatasetModel(name="cifar10")
    workload.check_data()
    with pytest.raises(WorkloadError, match=r"cifar10 is not in .* KERAS_HOME.* OSError: out of"):
        workload.load_data({})


def test_an_unknown_data_set_is_refused():
    with pytest.raises(InvalidSettingsError, match=r"name: must be .*did you mean 'mnist'"):
        KerasDatasetModel(name="minst")
