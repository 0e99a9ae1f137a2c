"""The best model as a folder that MLflow loads in a process that knows nothing of the sweep."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from documented import blocks

from tune_tf.sweep.model.export_actor import ExportActor, requirements
from tune_tf.sweep.model.export_process import ExportPrestart, ModelExportProcess


class Started:
    """A writer that notes whether it was started."""

    def __init__(self):
        self.was_started = False

    def start(self):
        self.was_started = True


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self):
        return self.now


@pytest.mark.parametrize(
    ("num_ended", "elapsed_s", "starts"),
    [
        pytest.param(2, 20, False, id="80 s are left"),
        pytest.param(8, 80, True, id="20 s are left"),
        pytest.param(2, 2, True, id="a short sweep"),
        pytest.param(10, 1000, True, id="the last trial of long ones"),
    ],
)
def test_the_process_is_started_shortly_before_the_end(num_ended, elapsed_s, starts):
    writer, clock = Started(), Clock()
    early = ExportPrestart(writer, 10, clock=clock)
    clock.now = 30.0  # the first processes
    early.on_trial_start()
    for ended in range(1, num_ended + 1):
        writer.was_started = False
        clock.now = 30.0 + elapsed_s * ended / num_ended
        early.on_trial_complete()

    assert writer.was_started is starts


def test_a_writer_that_was_never_needed_ends_nothing():
    with ModelExportProcess():
        pass


def test_the_process_imports_neither_tune_nor_pandas_with_its_class():
    code = (
        "import sys, tune_tf.sweep.model.export_actor\n"
        "print({'ray.tune', 'pandas', 'optuna', 'tune_tf.config'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "set()"


def test_what_a_clean_process_needs_is_pinned():
    import keras
    import tensorflow as tf

    assert f"keras=={keras.__version__}" in requirements()
    assert f"tensorflow=={tf.__version__}" in requirements()


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


LOAD = """
import sys, mlflow
path = sys.argv[1]
model = mlflow.keras.load_model(path)
served = mlflow.pyfunc.load_model(path)
example = served.input_example
told = served.predict(example)
assert abs(told - model.predict(example, verbose=0)).max() < 1e-6
assert served.metadata.metadata == {"origin": "s1"}
print("tune_tf" in sys.modules, told.shape, model.optimizer.name, served.metadata.signature.inputs)
"""


@pytest.mark.slow
def test_a_process_that_knows_nothing_of_the_sweep_loads_it(write):
    from tune_tf.workloads.digits import DigitsMLP

    written = write(DigitsMLP(), {"width": 8, "batch_size": 256})
    done = subprocess.run(
        [sys.executable, "-c", LOAD, str(written)],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=written,
    )

    assert done.returncode == 0, done.stderr
    assert "False (5, 10) adam" in done.stdout
    assert "Tensor('float32', (-1, 8, 8, 1))" in done.stdout
    lines = (written / "requirements.txt").read_text().splitlines()
    assert set(requirements()) <= set(lines)


def test_inputs_by_name_have_a_signature_by_name(write):
    from input_workloads import TwoInputs
    from mlflow.models import Model

    written = write(TwoInputs(), {})

    assert Model.load(str(written)).signature.inputs.input_names() == ["left", "right"]


def test_a_folder_takes_the_place_of_the_one_before(write, tmp_path):
    from input_workloads import TwoInputs

    (tmp_path / "best").mkdir()
    (tmp_path / "best" / "old").write_text("old")
    written = write(TwoInputs(), {})

    assert not (written / "old").exists()
    assert (written / "MLmodel").exists()
    assert not list(tmp_path.glob(".best*"))


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
    table["sold"] = pd.date_range("2020-01-30", periods=60).strftime("%d.%m.%Y")
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
    workload = TabularMLP(
        path=str(path), target="y", categorical=["postcode"], dates={"sold": "%d.%m.%Y"}
    )
    return workload, write(workload, {"width": 8}), pd.read_csv(path)


def test_mlflow_takes_a_table_as_pandas_reads_it(table_model, monkeypatch, tmp_path):
    import keras
    import mlflow
    import tensorflow as tf
    from mlflow.models.utils import load_serving_example
    from mlflow.pyfunc.scoring_server import infer_and_parse_data
    from mlflow.types.schema import AnyType

    workload, path, table = table_model
    assert workload.date_formats == {"sold": "%d.%m.%Y", "seen": "ISO8601"}
    model = mlflow.keras.load_model(str(path))
    columns = {
        name: table[name].astype("float32").to_numpy()
        if tensor.dtype == "float32"
        else table[name].map(lambda value: f"{value:g}" if value == value else "").to_numpy(object)
        if name == "postcode"
        else table[name].fillna("").to_numpy(object)
        for name, tensor in model.input.items()
    }
    for name, date_format in workload.date_formats.items():
        dates = pd.to_datetime(table[name], format=date_format, utc=True).dt.tz_localize(None)
        columns[name] = dates.to_numpy().astype("datetime64[s]").astype("int64")
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
        sold=pd.to_datetime(table["sold"], format="%d.%m.%Y"),
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
    assert served.input_example["sold"].str.fullmatch(r"\d\d\.\d\d\.2020").all()
    request = json.loads(load_serving_example(str(path)))
    assert sorted(request["dataframe_split"]["columns"]) == sorted(names)
    assert served.predict(served.input_example).shape == (5, 2)

    # The same model as a SavedModel.
    model.export(tmp_path / "exported", verbose=False)
    exported = tf.saved_model.load(tmp_path / "exported")
    tensors = {
        name: tf.constant(values.tolist(), keras.tree.flatten(model.input[name])[0].dtype)
        for name, values in columns.items()
    }
    np.testing.assert_allclose(exported.serve(tensors), wanted, atol=1e-6)
    signature = exported.signatures["serving_default"].structured_input_signature[1]
    assert {"column_0", "column_1", "x0", "A", "a_", "postcode", "sold"} <= set(signature)


@pytest.mark.parametrize(
    ("column", "value", "match"),
    [
        (
            "Größe (cm)",
            "tall",
            r"'Größe \(cm\)' must hold finite numbers, but row\(s\) 3 .* 'tall'",
        ),
        ("sold", "2020-01-31", r"'sold' must hold dates of the format %d.%m.%Y, but row\(s\) 3"),
        ("sold", 20200131, r"'sold' must hold dates of the format %d.%m.%Y, but row\(s\) 3"),
    ],
)
def test_a_served_table_with_a_wrong_value_is_refused(column, value, match, table_model):
    import mlflow

    _, path, table = table_model
    wrong = table.astype({column: object})
    wrong.loc[2, column] = value
    with pytest.raises(ValueError, match=match):
        mlflow.pyfunc.load_model(str(path)).predict(wrong)


def test_the_documented_lines_serve_texts_dates_and_missing_values(
    table_model, tmp_path, monkeypatch, capsys
):
    import mlflow

    _, path, table = table_model
    table.drop(columns="y").to_csv(tmp_path / "new_customers.csv", index=False)
    wanted = mlflow.pyfunc.load_model(str(path)).predict(table)
    (documented,) = set(blocks("served"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(mlflow, "set_tracking_uri", lambda uri: None)  # that of all tests
    exec(documented.replace("models:/customers@champion", str(path)), {})
    assert table.isna().any().sum() >= 16
    assert capsys.readouterr().out.split() == str(wanted.argmax(axis=1)).split()
