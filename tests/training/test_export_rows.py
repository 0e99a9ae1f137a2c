"""What a trained model is evaluated on."""

import pytest
import tensorflow as tf
from trials import Given, dense_model, draw

from tune_tf.training.export import evaluate_test_rows
from tune_tf.workload import Data

pytestmark = pytest.mark.tf


def test_test_rows_of_a_data_set_are_evaluated_as_arrays_are():
    data, model = draw(21, 11), dense_model({})
    data_set = tf.data.Dataset.from_tensor_slices(data.validation).batch(4)
    by_arrays, by_data_set = (
        evaluate_test_rows(Given(None, Data(train=data.train, test=test)), {}, model)
        for test in (data.validation, data_set)
    )

    assert by_data_set.keys() == {"test_loss"}
    assert by_data_set == pytest.approx(by_arrays, rel=1e-6)
