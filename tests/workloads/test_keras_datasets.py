"""The data sets of Keras."""

import json
import os
import subprocess
import sys

import numpy as np
import own_data_files
import pytest
from keras import datasets, layers

from tune_tf.errors import InvalidSettingsError, WorkloadError
from tune_tf.workloads.keras_datasets import KerasDatasetModel

REVIEWS = np.array([[5, 6, 7], [8], [9] * 5] * 10, object), np.array([0, 1, 1] * 10)


@pytest.mark.slow
def test_a_data_set_in_the_cache_is_read_by_the_loader_of_keras(tmp_path):
    keras_home = own_data_files.fashion(tmp_path / "keras", 40)
    script = """
import json
from tune_tf.workloads.keras_datasets import KerasDatasetModel
data = KerasDatasetModel(name="fashion_mnist", max_rows=30).load_data({})
parts = data.train, data.validation, data.test
print(json.dumps([[list(x.shape), str(x.dtype), len(y)] for x, y in parts]))
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "KERAS_HOME": str(keras_home)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert json.loads(done.stdout) == [
        [[24, 28, 28], "uint8", 24],
        [[6, 28, 28], "uint8", 6],
        [[40, 28, 28], "uint8", 40],
    ]


@pytest.mark.slow
def test_without_network_and_cache_it_is_told_which_file_belongs_where(tmp_path):
    script = """
from tune_tf.workloads.keras_datasets import KerasDatasetModel
KerasDatasetModel(name="mnist").load_data({})
"""
    nowhere = "http://127.0.0.1:9"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={
            **os.environ,
            "KERAS_HOME": str(tmp_path),
            "https_proxy": nowhere,
            "HTTPS_PROXY": nowhere,
        },
        capture_output=True,
        text=True,
    )

    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("tune_tf.errors.WorkloadError: the data set mnist is not in Keras'")
    assert "URL fetch failure on https://" in last
    assert f"put there {tmp_path}/datasets/mnist.npz" in last


@pytest.mark.parametrize(
    ("name", "shape", "num_classes"),
    [
        ("mnist", (28, 28), 10),
        ("fashion_mnist", (28, 28), 10),
        ("cifar10", (32, 32, 3), 10),
        ("imdb", (200,), 2),
    ],
)
def test_a_model_is_built_without_the_data(name, shape, num_classes):
    workload = KerasDatasetModel(name=name)
    workload.check_data()
    model = workload.build_model({"filters": 2, "width": 4})

    assert (model.input_shape, model.output_shape) == ((None, *shape), (None, num_classes))


def test_texts_are_the_last_words_of_a_review(monkeypatch):
    monkeypatch.setattr(datasets.imdb, "load_data", lambda num_words: (REVIEWS, REVIEWS))
    workload = KerasDatasetModel(name="imdb", max_length=4, num_words=10)
    x, y = workload.load_data({}).test

    assert x[:3].tolist() == [[0, 5, 6, 7], [0, 0, 0, 8], [9, 9, 9, 9]]
    assert y[:3].tolist() == [0, 1, 1]
    model = workload.build_model({"embedding_dim": 3})
    assert any(isinstance(each, layers.Embedding) for each in model.layers)
    assert model.predict(x, verbose=0).shape == (30, 2)


def test_what_the_loader_says_is_told(monkeypatch):
    def refuse():
        raise OSError("out of tape")

    monkeypatch.setattr(datasets.cifar10, "load_data", refuse)
    with pytest.raises(WorkloadError, match=r"cifar10 is not in .* OSError: out of tape"):
        KerasDatasetModel(name="cifar10").load_data({})


def test_an_unknown_data_set_is_refused():
    with pytest.raises(InvalidSettingsError, match=r"name: must be .*did you mean 'mnist'"):
        KerasDatasetModel(name="minst")
