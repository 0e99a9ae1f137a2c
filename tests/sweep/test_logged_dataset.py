"""The data set of a sweep as MLflow records it."""

import json

from tune_tf.sweep.mlflow_store import dataset_of
from tune_tf.workloads.digits import DigitsMLP
from tune_tf.workloads.tabular import TabularMLP


def test_files_count_by_their_stamp(tmp_path):
    path = tmp_path / "wine.csv"
    path.write_text("a,b\n" + "".join(f"{row},{row % 3}\n" for row in range(60)))

    def found():
        workload = TabularMLP(path=str(path), target="b")
        workload.check_data()
        return dataset_of(workload)

    first = found()
    assert (first["name"], first["source_type"]) == ("wine.csv", "local")
    assert json.loads(first["source"]) == {"uri": str(path)}
    assert found() == first
    path.write_text(path.read_text() + "1,1\n")
    assert found()["digest"] != first["digest"]


def test_data_without_files_are_not_named():
    assert dataset_of(DigitsMLP()) is None
