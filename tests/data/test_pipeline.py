"""The settings of a pipeline."""

import numpy as np
import pytest

from tune_tf.data import FoldedRows, Pipeline, rows_of
from tune_tf.errors import InvalidSettingsError, WorkloadError
from tune_tf.parallelism import Folds
from tune_tf.workload import Data

ROWS = (np.zeros((5, 2)), np.zeros(5))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        pytest.param({"rows": ROWS[0]}, r"rows must be a tuple \(x, y\)", id="no tuple"),
        pytest.param({"rows": (ROWS[0],)}, r"rows must be a tuple \(x, y\)", id="no labels"),
        pytest.param({"map": 3}, "map must be a function of a row, not 3", id="no function"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(InvalidSettingsError, match=message):
        Pipeline(**{"rows": ROWS} | settings)


def test_all_faults_are_told_at_once():
    with pytest.raises(InvalidSettingsError) as raised:
        Pipeline(ROWS[:1], map=3)

    assert len(raised.value.details) == 2


def test_rows_are_counted():
    rows = rows_of(Data(train=Pipeline(ROWS), validation=Pipeline(tuple(a[:2] for a in ROWS))))

    assert (rows.num_train, rows.num_validation) == (5, 2)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(
            Data(Pipeline((ROWS[0], ROWS[1][:3]))),
            r"Data\.train differ in number of rows",
            id="lengths",
        ),
        pytest.param(
            Data(Pipeline((ROWS[0][:0], ROWS[1][:0]))), r"Data\.train is empty", id="none"
        ),
        pytest.param(
            Data(Pipeline(ROWS), class_weight={0: 2}), "class_weight is for", id="classes"
        ),
    ],
)
def test_rows_that_cannot_be_trained_on_are_refused(data, message):
    with pytest.raises(WorkloadError, match=message):
        rows_of(data)


def test_folds_of_a_pipeline_are_refused():
    with pytest.raises(WorkloadError, match=r"Data\.train is a Pipeline"):
        FoldedRows(Data(Pipeline(ROWS)), Folds(2), seed=0)
