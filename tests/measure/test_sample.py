"""Workloads of which only the first batches are measured."""

import numpy as np
import pytest

from tune_tf.errors import WorkloadError
from tune_tf.measure.sample import sample_workload
from tune_tf.workload import Data, Workload


class Rows(Workload):
    def __init__(self, data):
        self._data = data

    def load_data(self, config):
        return self._data

    def build_model(self, config):
        return "model"

    def callbacks(self, config):
        raise AssertionError("asked for callbacks")


def arrays(num_rows):
    return np.zeros((num_rows, 4), np.float32), np.arange(num_rows)


def sampled(data, **sample):
    return sample_workload(Rows(data), **sample).load_data({"batch_size": 10})


def test_small_data_and_all_batches_stay_as_they_are():
    data = Data(arrays(15), arrays(5))
    assert sampled(data, max_batches=2) is data
    assert sampled(data) is data


def test_training_and_validation_rows_are_cut_alike_without_their_groups():
    found = sampled(Data(arrays(200), arrays(50), groups=np.arange(250)), max_batches=2)
    assert list(found.train[1]) == list(range(20))
    assert len(found.validation[0]) == 5
    assert found.groups is None


@pytest.mark.tf
def test_data_sets_are_cut_to_batches_but_have_these_sizes_only():
    import tensorflow as tf

    data = Data(tf.data.Dataset.from_tensor_slices(arrays(100)).batch(10), arrays(5))
    assert sampled(data, max_batches=2).steps_per_epoch == 2
    assert sampled(data).steps_per_epoch is None
    with pytest.raises(WorkloadError, match="batches of their own"):
        sampled(data, max_batches=2, batch_factor=2.0)


def test_batches_may_be_larger_and_no_callback_is_called():
    workload = sample_workload(Rows(Data(arrays(15))), 2, batch_factor=0.5)
    assert workload.global_batch_size({"batch_size": 10}) == 5
    assert workload.callbacks({}) == ()
