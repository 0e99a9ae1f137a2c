"""The best model as a folder that MLflow loads in a process that knows nothing of the sweep."""

import json
import os
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tune_tf.sweep.model.export_actor import ExportActor


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Train a workload for an epoch and write its model's folder."""
    from tune_tf.tracking.trial_run import leave_trial
    from tune_tf.training import devices

    monkeypatch.setattr(os, "nice", lambda increment: None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(
        devices, "claim_devices", lambda resources, num: devices.Devices(("CPU:0",))
    )

    def write(workload, config, **options):
        from tune_tf.parallelism import Mirrored
        from tune_tf.resources import TrialResources
        from tune_tf.trainables import MirroredTrainable
        from tune_tf.trainables.trial_process import PickledWorkload
        from tune_tf.trainables.trial_settings import TrialSettings

        class Trained(MirroredTrainable):
            def setup(self, config):
                settings = TrialSettings(Mirrored(), TrialResources())
                super().setup(config, workload=PickledWorkload.of(workload), settings=settings)

        trainable = Trained(config)
        trainable.train()
        checkpoint = tmp_path / "checkpoint"
        checkpoint.mkdir()
        trainable.save_checkpoint(str(checkpoint))
        trainable.stop()
        leave_trial()
        folder = tmp_path / "best"
        ExportActor().write(workload, config, checkpoint, folder, {"origin": "s1"}, **options)
        return folder

    return write


def test_inputs_by_name_have_a_signature_by_name(write):
    from input_workloads import TwoInputs
    from mlflow.models import Model

    written = write(TwoInputs(), {})

    assert Model.load(str(written)).signature.inputs.input_names() == ["left", "right"]


def test_the_written_model_is_evaluated_on_the_test_rows(write, tmp_path):
    import keras
    from input_workloads import TwoInputs

    class WithTestRows(TwoInputs):
        def load_data(self, config):
            data = super().load_data(config)
            return replace(data, test=data.train)

    workload = WithTestRows()
    write(workload, {})
    arguments = workload, {}, tmp_path / "checkpoint"

    metrics = ExportActor().evaluate(*arguments)

    saved = keras.models.load_model(tmp_path / "best" / "data" / "model.keras")
    told = saved.evaluate(*workload.load_data({}).train, verbose=0, return_dict=True)
    assert metrics == {f"test_{name}": pytest.approx(told[name], abs=1e-6) for name in told}
    assert ExportActor().evaluate(TwoInputs(), *arguments[1:]) == {}


AWKWARD = (
    "Größe (cm)",
    "a/b",
    "a b",
    "1st",
    "x[0]",
    "x0",
    "🙂",
    "class",
    "A",
    "a",
    "é",
    "self",
    "",
)


def awkward_table(path):
    """Write a table with names that no graph takes, dates and empty cells."""
    rng = np.random.default_rng(0)
    texts, numbers = rng.choice(["u", "v", "ü"], (60, 13)), rng.integers(0, 9, (60, 13))
    table = pd.DataFrame(
        {name: (texts if i % 2 else numbers)[:, i] for i, name in enumerate(AWKWARD)}
    )
    table["postcode"] = rng.choice([1010, 8001], 60)
    table["sold"] = pd.date_range("2020-01-30", periods=60).strftime("%Y-%m-%d")
    table["seen"] = pd.date_range("2019-01-30", periods=60, freq="191h", tz="Europe/Vienna")
    for position, name in enumerate(table.columns):
        table[name] = table[name].astype(object).where(np.arange(60) != position, None)
    table["y"] = ["p", "q"] * 30
    table.to_csv(path, index=False)


@pytest.fixture
def table_model(write, tmp_path):
    """A workload on an awkward table, its model in MLflow's format, and its table."""
    from tune_tf.workloads.tabular import TabularMLP

    path = tmp_path / "table.csv"
    awkward_table(path)
    workload = TabularMLP(path=str(path), target="y", categorical=["postcode"])
    return workload, write(workload, {"width": 8}), pd.read_csv(path)


def test_mlflow_takes_a_table_as_pandas_reads_it(table_model, monkeypatch, tmp_path):
    import mlflow
    from mlflow.models.utils import load_serving_example
    from mlflow.pyfunc.scoring_server import infer_and_parse_data
    from mlflow.types.schema import AnyType

    workload, path, table = table_model
    assert workload.properties.columns.dates == ("sold", "seen")
    model = mlflow.keras.load_model(str(path))
    columns = {
        name: table[name].astype("float32").to_numpy()
        if tensor.dtype == "float32"
        else table[name].map(lambda value: f"{value:g}" if value == value else "").to_numpy(object)
        if name == "postcode"
        else table[name].fillna("").to_numpy(object)
        for name, tensor in model.input.items()
    }
    for name in workload.properties.columns.dates:
        dates = pd.to_datetime(table[name], utc=True) - pd.Timestamp(0, tz="UTC")
        columns[name] = (dates / pd.Timedelta(days=1)).to_numpy()
    wanted = model.predict(columns, verbose=0)
    served = mlflow.pyfunc.load_model(str(path))

    def assert_served(rows, numbers):
        np.testing.assert_allclose(served.predict(rows), wanted[numbers], atol=1e-5)

    assert_served(table, slice(None))
    later = table[table["A"] > 4]  # rows that do not begin with the number 0
    assert_served(later, later.index)
    for row in range(16):  # of each some column is empty, and whole numbers are integers again
        assert_served(table[row : row + 1].convert_dtypes(), slice(row, row + 1))
    read = table.assign(
        sold=pd.to_datetime(table["sold"]),
        seen=pd.to_datetime(table["seen"], utc=True),
    )
    assert_served(read, slice(None))
    request = {"dataframe_split": json.loads(table.to_json(orient="split", index=False))}
    rows = infer_and_parse_data(request, served.metadata.signature.inputs)
    assert_served(rows, slice(None))

    signature = served.metadata.signature
    names = [name for name in table.columns if name != "y"]
    assert sorted(signature.inputs.input_names()) == sorted(names)
    assert {type(each) for each in signature.inputs.input_types()} == {AnyType}
    assert signature.outputs.inputs[0].shape == (-1, 2)
    assert served.input_example["sold"].str.fullmatch(r"2020-\d\d-\d\d").all()
    request = json.loads(load_serving_example(str(path)))
    assert sorted(request["dataframe_split"]["columns"]) == sorted(names)
    assert served.predict(served.input_example).shape == (1, 2)
