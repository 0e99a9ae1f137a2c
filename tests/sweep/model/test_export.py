"""The model of a trial as files that serve it."""

import subprocess
import sys

import numpy as np
import own_data_files
import pytest

from tune_tf import SweepConfig
from tune_tf.errors import CheckpointError, InvalidSettingsError, WorkloadError
from tune_tf.outcome import Outcome
from tune_tf.results import SweepResult, TrialResult

SERVED = {
    "keras": """
import keras
told = keras.models.load_model(path).predict(x, verbose=0)
assert "tune_tf" not in sys.modules
""",
    "saved_model": """
import tensorflow as tf
model = tf.saved_model.load(path)
told = model.serve(x).numpy()
""",
    "tflite": """
import warnings
import tensorflow as tf
warnings.simplefilter("ignore")
runner = tf.lite.Interpreter(path).get_signature_runner("serving_default")
told = runner(**x)["output_0"]
""",
}
CLEAN = """
import sys
import numpy as np
path, rows = sys.argv[1:]
with np.load(rows) as given:
    wanted = given["wanted"]
    x = {{name: given[name] for name in given if name != "wanted"}}
x = {{name: rows.astype(object) if rows.dtype.kind == "U" else rows for name, rows in x.items()}}
{served}
np.testing.assert_allclose(told, wanted, rtol=1e-5, atol=1e-5)
print(told.shape)
"""


def result_of(tmp_path, *trials, workload="tune_tf.workloads.tabular:TabularMLP"):
    config = SweepConfig.from_dict(
        {
            "name": "wine",
            "workload": workload,
            "data": {"path": "wine.csv", "target": "class"},
            "objective": {"metric": "val_loss", "mode": "min"},
            "space": {"width": {"choice": [4, 8]}},
            "budget": {"num_samples": 2},
        }
    )
    return SweepResult("wine-1", tmp_path, config, tmp_path, trials)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A sweep's result with one trial that has trained on a table; rows, and what it predicts."""
    from tune_tf import trainable
    from tune_tf.training.export import trained_model
    from tune_tf.workloads.tabular import TabularMLP

    folder = tmp_path_factory.mktemp("trained")
    own_data_files.wine(folder / "wine.csv")
    workload = TabularMLP(path=str(folder / "wine.csv"), target="class")
    config = {"width": 8, "batch_size": 32, "learning_rate": 0.01}
    trial = trainable(workload, seed=7)(config=config)
    metrics = trial.train()
    checkpoint = folder / "checkpoint"
    checkpoint.mkdir()
    trial.save_checkpoint(str(checkpoint))
    x, y = workload.load_data(config).validation
    model = trained_model(workload, config, checkpoint)
    wanted = model.predict(x, verbose=0)
    assert model.evaluate(x, y, verbose=0)[0] == pytest.approx(metrics["val_loss"], rel=1e-5)
    np.savez(folder / "rows.npz", wanted=wanted, **x)
    table = own_data_files.validation_rows(workload).fillna({"region": ""})
    columns = {name: table[name].to_numpy("float32") for name in table if name != "region"}
    columns["region"] = table["region"].to_numpy(str)
    np.savez(folder / "columns.npz", wanted=wanted, **columns)
    trial.stop()
    told = {"val_loss": metrics["val_loss"]}
    return result_of(
        folder, TrialResult("t0", 0, config, Outcome.COMPLETED, metrics=told, checkpoint=checkpoint)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file_format", "name"),
    [
        ("keras", "model.keras"),
        ("saved_model", "model"),
        ("tflite", "model.tflite"),
    ],
    ids=SERVED,
)
def test_a_clean_process_predicts_what_the_trial_did(trained, file_format, name, tmp_path):
    path = trained.export_model(tmp_path / name)

    assert [each.name for each in tmp_path.iterdir()] == [name]
    code = CLEAN.format(served=SERVED[file_format])
    rows = "columns.npz" if file_format in ("keras", "saved_model") else "rows.npz"
    done = subprocess.run(
        [sys.executable, "-c", code, str(path), str(trained.path / rows)],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert "(36, 3)" in done.stdout


def test_what_was_there_is_left_if_the_model_cannot_be_written(trained, tmp_path, monkeypatch):
    import keras

    def export(self, path, **options):
        path.write_text("a part")
        raise RuntimeError("no such operation\nand more")

    monkeypatch.setattr(keras.Model, "export", export)
    (tmp_path / "m.tflite").write_text("before")
    with pytest.raises(WorkloadError, match="cannot be written as tflite: no such operation; a"):
        trained.export_model(tmp_path / "m.tflite")
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [
        ("m.tflite", "before")
    ]


def test_a_trial_without_a_checkpoint_names_those_that_have_one(tmp_path):
    failed = TrialResult("t0", 0, {}, Outcome.ERROR)
    good = TrialResult("t1", 1, {}, Outcome.COMPLETED, checkpoint=tmp_path)

    with pytest.raises(CheckpointError, match=r"trial 0 \(t0\) has no .* \(error; 0 .*trials 1 ha"):
        result_of(tmp_path, failed, good).export_model(tmp_path / "m.keras", failed)


@pytest.mark.parametrize("name", ["a.pb", "a.h5", "model-1.2"])
def test_a_path_that_names_no_format_is_refused(tmp_path, name):
    trial = TrialResult("t0", 0, {}, Outcome.COMPLETED, checkpoint=tmp_path)
    with pytest.raises(InvalidSettingsError, match=f"must end in .keras or .tflite.* not .*{name}"):
        result_of(tmp_path).export_model(tmp_path / name, trial)
