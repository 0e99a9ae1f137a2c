"""Workloads of which only the first batches are measured."""

import numpy as np
import pytest

from tune_tf.data import Pipeline
from tune_tf.estimate.workload_sample import (
    BUILDS_MODEL,
    TrialSample,
    read_process_counts,
    sample_workload,
)
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


def cut(data, tmp_path, *, max_batches=2):
    workload = sample_workload(Rows(data), TrialSample(max_batches, str(tmp_path)))
    found = workload.load_data({"batch_size": 10})
    (told,) = read_process_counts(str(tmp_path)).values()
    return found, told


def test_small_data_are_measured_whole(tmp_path):
    data = Data(arrays(15), arrays(5))
    found, told = cut(data, tmp_path)
    assert found is data
    assert told == {
        "num_rows": 15,
        "total_rows": 15,
        "validation_rows": 5,
        "left_out_bytes": 0,
    }


def test_sample_of_large_data_cuts_training_and_validation_rows_alike(tmp_path):
    found, told = cut(Data(arrays(200), arrays(50)), tmp_path)
    assert list(found.train[1]) == list(range(20))
    assert len(found.validation[0]) == 5
    assert (told["num_rows"], told["total_rows"]) == (20, 200)
    assert told["left_out_bytes"] == pytest.approx(0.9 * 250 * (16 + 8))


def test_rows_keep_their_groups(tmp_path):
    found, _ = cut(Data(arrays(200), arrays(50), groups=np.arange(250)), tmp_path)
    assert list(found.groups) == [*range(20), *range(200, 205)]


def test_sample_of_a_pipeline_reads_its_first_rows(tmp_path):
    pipeline = Pipeline(arrays(200))
    found, told = cut(Data(pipeline), tmp_path)
    assert found.train.num_rows == 20
    assert told["left_out_bytes"] == 0  # no trial holds them


def test_batches_whose_rows_nobody_has_counted_stay_as_they_are(tmp_path):
    data = Data(iter([arrays(10)]))
    found, told = cut(data, tmp_path)
    assert found is data
    assert told == {}


def test_a_process_that_builds_a_model_is_known_and_no_callback_is_called(tmp_path):
    workload = sample_workload(Rows(Data(arrays(15))), TrialSample(2, str(tmp_path)))
    assert workload.build_model({}) == "model"
    assert workload.callbacks({}) == ()
    (told,) = read_process_counts(str(tmp_path)).values()
    assert told == {BUILDS_MODEL: 1}
