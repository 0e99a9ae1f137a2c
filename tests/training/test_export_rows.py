"""What a trained model is evaluated on, and its example of an input."""

import pytest
from streams import as_it_is
from trials import Given, dense_model, draw

from tune_tf.data import Pipeline
from tune_tf.training.export import evaluate_test_rows
from tune_tf.workload import Data

pytestmark = pytest.mark.tf


def test_test_rows_of_a_pipeline_are_evaluated_as_arrays_are():
    data, model = draw(21, 11), dense_model({})
    by_arrays, by_pipeline = (
        evaluate_test_rows(Given(None, Data(train=data.train, test=test)), {}, model)
        for test in (data.validation, Pipeline(data.validation, map=as_it_is))
    )

    assert by_pipeline.keys() == {"test_loss"}
    assert by_pipeline == pytest.approx(by_arrays, rel=1e-6)
