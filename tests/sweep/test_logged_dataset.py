"""The data set of a sweep as MLflow records it."""

import json

import numpy as np

from tune_tf.sweep.mlflow_store import dataset_of
from tune_tf.workload import Data
from tune_tf.workloads.function_workload import FunctionWorkload
from tune_tf.workloads.tabular import TabularMLP


def of_arrays(x, model=None):
    return dataset_of(FunctionWorkload(model or print, Data((x, x[:, 0]))), "workload.py:mine")


def test_arrays_at_hand_count_by_their_contents():
    rows = np.arange(12.0).reshape(4, 3)
    other = rows.copy()
    other[3, 2] += 1
    first = of_arrays(rows)
    assert first["name"] == "mine"
    assert first == of_arrays(rows.copy(), model=max)
    assert first["digest"] != of_arrays(other)["digest"]


def test_files_count_by_their_stamp(tmp_path):
    path = tmp_path / "wine.csv"
    path.write_text("a,b\n" + "".join(f"{row},{row % 3}\n" for row in range(60)))

    def found():
        workload = TabularMLP(path=str(path), target="b")
        workload.check_data()
        return dataset_of(workload, "tune_tf.workloads.tabular:TabularMLP")

    first = found()
    assert (first["name"], first["source_type"]) == ("wine.csv", "local")
    assert json.loads(first["source"]) == {"uri": str(path)}
    assert found() == first
    path.write_text(path.read_text() + "1,1\n")
    assert found()["digest"] != first["digest"]
