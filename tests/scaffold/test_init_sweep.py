"""Sweep files and workloads that are written for data of one's own."""

import numpy as np
import own_data_files
import pandas as pd
import pytest

from tune_tf.config import SCHEMA_COMMENT, SCHEMA_FILE, schema_text
from tune_tf.errors import InvalidSettingsError, WorkloadError
from tune_tf.scaffold import init_sweep


@pytest.fixture
def init(tmp_path, monkeypatch):
    """Write a sweep file in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return init_sweep


def settings_of(written):
    return written.plan.config.data


def text_of(written):
    return written.path.read_text()


def test_a_table_of_classes(init, tmp_path):
    own_data_files.wine(tmp_path / "data/wine.csv")
    written = init("data/wine.csv", "sweeps/wine.yaml", target="class")

    config = written.plan.config
    assert (config.name, config.workload) == ("wine", "tune_tf.workloads.tabular:TabularMLP")
    assert config.data["path"] == "../data/wine.csv"
    assert (config.objective.metric, config.objective.mode) == ("val_accuracy", "max")
    assert "embedding_dim" in config.space.parameters
    assert "target: class" in text_of(written)
    assert "3 classes in 178 rows: barbera, barolo, grignolino" in text_of(written)
    assert "task: classification              # guessed" in text_of(written)


def test_a_table_of_numbers(init, tmp_path):
    own_data_files.wine(tmp_path / "wine.parquet")
    written = init("wine.parquet", target="proline")

    assert written.task == settings_of(written)["task"] == "regression"
    assert (written.plan.config.objective.metric, written.plan.config.objective.mode) == (
        "val_mae",
        "min",
    )
    assert "numbers in 178 rows: 774.6 on average" in text_of(written)


def test_columns_that_only_tell_rows_apart_are_left_out(init, tmp_path):
    rows = np.arange(40)
    table = {"id": rows + 7, "mail": [f"a{row}@b.example" for row in rows], "x": rows % 3.0}
    pd.DataFrame({**table, "y": rows % 2}).to_csv(tmp_path / "t.csv", index=False)
    written = init("t.csv", target="y")

    assert settings_of(written)["ignore"] == ["id", "mail"]
    assert "embedding_dim" not in written.plan.config.space.parameters


def test_what_pandas_is_told_of_a_file_is_written(init, tmp_path):
    table = pd.DataFrame({"Größe": np.arange(40) % 7 / 2, "y": ["a", "b"] * 20})
    table["sold"] = pd.date_range("2020-01-01", periods=40).strftime("%Y-%m-%d")
    table.to_csv(tmp_path / "t.csv", sep=";", decimal=",", encoding="cp1252", index=False)
    with pytest.raises(
        WorkloadError, match=r"'Größe' is not read as numbers.*--read-csv decimal=,"
    ):
        init("t.csv", target="y", read_csv={"encoding": "cp1252"})
    read_csv = {"sep": ";", "decimal": ",", "encoding": "cp1252"}
    settings = settings_of(init("t.csv", target="y", read_csv=read_csv))

    assert settings["read_csv"] == read_csv
    assert "ignore" not in settings


@pytest.mark.parametrize("name", ["no", ".5", ".1_0", "~", "._"])
def test_a_name_that_yaml_would_take_for_something_else_stands_in_quotes(init, tmp_path, name):
    rows, path = np.arange(40), "my #1 'tab\".csv"
    pd.DataFrame({"x: 1": rows % 5.0, name: rows % 2}).to_csv(tmp_path / path, index=False)
    written = init(path, target=name)

    assert (settings_of(written)["path"], settings_of(written)["target"]) == (path, name)
    assert written.plan.config.name == "my-1-tab"


def test_a_folder_of_class_folders(init, tmp_path):
    own_data_files.digit_folders(tmp_path / "digits", 60)
    written = init("digits")

    settings = settings_of(written)
    assert (settings["image_size"], settings["channels"]) == (8, 1)
    assert "10 classes: 0, 1, 2, 3, 4, ..." in text_of(written)


def test_arrays_in_one_file(init, tmp_path):
    own_data_files.digit_arrays(tmp_path / "digits.npz", 60)
    written = init("digits.npz")

    assert settings_of(written)["path"] == "digits.npz"
    assert "filters" in written.plan.config.space.parameters
    assert "each of shape [8, 8]" in text_of(written)


def test_arrays_of_numbers(init, tmp_path):
    rows = np.random.default_rng(0).normal(size=(50, 3))
    np.savez(tmp_path / "all.npz", x=rows, y=np.linspace(0, 1, 50))
    written = init("all.npz")

    assert written.task == "regression"
    assert "num_layers" in written.plan.config.space.parameters


def test_the_workload_of_ones_own_trains_as_it_stands(init):
    from tune_tf import trainable

    written = init()

    assert text_of(written).splitlines()[0] == SCHEMA_COMMENT
    assert written.path.with_name(SCHEMA_FILE).read_text() == schema_text()
    lines = written.path.with_name("my_workload.py").read_text().splitlines()
    assert 10 <= len([line for line in lines if line.strip()]) <= 30
    config = {**written.plan.examples[0], "learning_rate": 0.01}
    trial = trainable(written.plan.workload, seed=7)(config=config)
    accuracies = [trial.train()["val_accuracy"] for _ in range(4)]
    trial.stop()
    assert accuracies[-1] > 0.7


def test_a_workload_on_a_table_has_the_model_of_the_ready_one(init, tmp_path):
    own_data_files.wine(tmp_path / "wine.csv")
    written = init("wine.csv", target="class", workload="mine.py")

    assert written.plan.config.workload == "mine.py:MyWorkload"
    assert "numeric: floats of shape [13]" in (tmp_path / "mine.py").read_text()
    model = written.plan.workload.build_model(written.plan.examples[0])
    assert {tensor.name for tensor in model.inputs} == {"numeric", "categorical"}


@pytest.mark.parametrize("name", ["sweep.yaml", "my_workload.py"])
def test_a_file_that_is_there_is_left_alone(init, tmp_path, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(InvalidSettingsError, match=f"{name} already exists.*--force"):
        init()
    assert (tmp_path / name).read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert text_of(init(force=True)) != "mine"


BAD = {
    "a misspelt target": (("wine.csv", {"target": "clas"}), "did you mean 'class'"),
    "a table without a target": (("wine.csv", {}), "Pass --target COLUMN; the columns of wine.csv"),
    "a misspelt file": (("wines.csv", {}), "did you mean 'wine.csv'"),
    "an unknown kind": (
        ("wine.xlsx", {}),
        "no ready workload takes wine.xlsx: name a file ending in .csv",
    ),
    "a target of images": (("images", {"target": "a"}), "--target is for tables, and images is"),
    "a target of nothing": ((None, {"target": "a"}), "--target a needs DATA"),
    "an array alone": (("x.npy", {}), r"no ready workload takes x.npy: .*\.npz"),
    "a workload of another kind": ((None, {"workload": "a.txt"}), "to a .py file, not to a.txt"),
}


@pytest.mark.parametrize(("given", "told"), BAD.values(), ids=BAD.keys())
def test_what_is_not_clear_is_told_and_nothing_is_written(init, tmp_path, given, told):
    own_data_files.wine(tmp_path / "wine.csv")
    (tmp_path / "wine.xlsx").touch()
    (tmp_path / "images").mkdir()
    np.save(tmp_path / "x.npy", np.zeros(3))
    before = sorted(tmp_path.iterdir())
    data, options = given

    with pytest.raises(InvalidSettingsError, match=told):
        init(data, **options)
    assert sorted(tmp_path.iterdir()) == before
