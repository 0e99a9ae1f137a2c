"""Tables of users' own."""

import pickle

import keras
import numpy as np
import own_data_files
import pandas as pd
import pytest
from documented import blocks

from tune_tf.errors import InvalidSettingsError, WorkloadError
from tune_tf.workloads import tabular
from tune_tf.workloads.column_model import ColumnModel
from tune_tf.workloads.table import read_table
from tune_tf.workloads.tabular import TabularMLP

TABLE = {
    "size": [1.0, 2.0, None, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0],
    "colour": ["red", "blue", "red", None, "blue", "red", "red", "blue", "red", "blue"],
    "kind": ["a", "b"] * 5,
}
DATES = pd.date_range("2018-03-01", periods=10, freq="97D")


@pytest.fixture
def table(tmp_path):
    """Write a table of ten rows with some columns changed; return its path."""

    def write(name="table.csv", text=None, **changes):
        path, frame = tmp_path / name, pd.DataFrame({**TABLE, **changes})
        if text is not None:
            path.write_bytes(text)
        elif path.suffix == ".parquet":
            frame.to_parquet(path)
        else:
            frame.to_csv(path, index=False)
        return str(path)

    return write


def made(path, **settings):
    return TabularMLP(path=path, **{"target": "kind", **settings})


@pytest.mark.parametrize("name", ["wine.csv", "wine.parquet", "wine.csv.gz"])
def test_numbers_and_categories_are_found_and_each_part_has_its_share_of_each_class(name, tmp_path):
    path = own_data_files.wine(tmp_path / name)
    workload = made(str(path), target="class")
    data, properties = workload.load_data({}), workload.properties

    assert len(properties.columns.numbers) == 13
    assert properties.columns.categories == {"region": ("north", "south")}
    assert properties.classes == ("barbera", "barolo", "grignolino")
    parts = [data.train, data.validation, data.test]
    assert [len(y) for _, y in parts] == [124, 36, 18]
    assert np.ptp([np.bincount(y) / len(y) for _, y in parts], axis=0).max() < 0.06
    assert len({tuple(row) for x, _ in parts for row in np.nan_to_num(x["numeric"])}) == 178


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        pytest.param(b"size;colour;kind\n1,5;\xe4;a\n2;b;b\n", {"decimal": ","}, id="semicolon"),
        pytest.param(b"size\tcolour\tkind\n1.5\t\xe4\ta\n2\tb\tb\n", {}, id="tab"),
        pytest.param(b"size|colour|kind\n1.5|\xe4|a\n2|b|b\n", {"sep": "|"}, id="told"),
        pytest.param(b'size,colour,kind\n"1,5",\xe4,a\n"2,0",b,b\n', {"decimal": ","}, id="quoted"),
    ],
)
def test_a_text_file_is_read_as_pandas_reads_it(text, settings, table):
    rows = text.split(b"\n", 1)
    path = table(text=rows[0] + b"\n" + rows[1] * 5)
    columns = made(path, read_csv={"encoding": "cp1252", **settings}).properties.columns

    assert columns.numbers == ("size",)
    assert columns.categories == {"colour": ("b", "ä")}
    assert 1.5 < columns.means[0] < 2


def test_thousands_and_texts_for_missing_values_are_as_told(table):
    path = table(text=b"size;n;kind\n" + b"1.500,5;?;a\n2.000,5;1;b\n" * 5)
    told = {"decimal": ",", "thousands": ".", "na_values": ["?"]}
    columns = made(path, read_csv=told, test_share=0, validation_share=0).properties.columns

    assert columns.numbers == ("size", "n")
    assert columns.means.tolist() == [1750.5, 1]
    assert columns.missing.tolist() == [False, True]


def test_statistics_are_those_of_the_training_rows(table):
    workload = made(table())
    (x, _), columns = workload.load_data({}).train, workload.properties.columns

    sizes = x["numeric"][:, 0]
    filled = np.where(np.isnan(sizes), np.nanmedian(sizes), sizes)
    assert columns.medians[0] == np.nanmedian(sizes)
    assert columns.means[0] == pytest.approx(filled.mean())
    assert columns.variances[0] == pytest.approx(filled.var())


def test_the_model_fills_in_missing_numbers_itself_and_tells_them_apart(table):
    rows = [None, 2.0, None, 4.0, 5.0, None, 7.0, 8.0, None, 10.0]
    workload = made(table(size=rows), ignore=["colour"])
    model, median = workload.build_model({}), workload.properties.columns.medians[0]

    missing, given = model.predict({"numeric": np.array([[np.nan], [median]])}, verbose=0)
    assert np.isfinite(missing).all()
    assert not np.allclose(missing, given)


def test_unknown_and_missing_categories_have_codes_of_their_own(table):
    workload = made(table(shape=["x", "y"] * 5))
    rows = pd.DataFrame({"size": 1, "colour": ["blue", "red", "green", None], "shape": "z"})

    codes = workload.inputs_of(rows)["categorical"]
    assert codes.tolist() == [[2, 4], [3, 4], [0, 4], [1, 4]]
    (embedding,) = [
        layer
        for layer in workload.build_model({}).layers
        if isinstance(layer, keras.layers.Embedding)
    ]
    assert embedding.input_dim == 8


@pytest.mark.parametrize(
    ("target", "task", "num_classes"),
    [
        pytest.param(["a", "b"] * 5, "auto", 2, id="text"),
        pytest.param(["1", "02"] * 5, "auto", 2, id="digits as text"),
        pytest.param(["1,5", "2"] * 5, "classification", 2, id="text told classification"),
        pytest.param([True, False] * 5, "auto", 2, id="truth"),
        pytest.param([3, 1, 7, 3, 1] * 2, "auto", 3, id="few whole numbers"),
        pytest.param([0.5, 1.5] * 5, "auto", None, id="numbers"),
        pytest.param([1, 2] * 5, "regression", None, id="told regression"),
        pytest.param(pd.array([1, 2] * 5, "Int64"), "auto", 2, id="nullable whole numbers"),
        pytest.param([1.0, 2.5] * 5, "classification", 2, id="told classification"),
    ],
)
def test_what_is_learnt_follows_from_the_target(target, task, num_classes, table):
    workload = made(table("table.parquet", kind=target), task=task)

    assert workload.properties.head.num_classes == num_classes
    assert (workload.build_model({}).loss == "mse") is (num_classes is None)


def test_numbers_are_predicted_in_the_unit_of_the_target(table):
    workload = made(table(kind=[1000.5 + 3 * row for row in range(10)]), test_share=0)
    model = workload.build_model({})
    x, y = workload.load_data({}).train

    predicted = model.predict(x, verbose=0)[:, 0]
    assert np.abs(predicted - y.mean()).max() < 20 * y.std()
    told = model.evaluate(x, y, return_dict=True, verbose=0)
    assert told["mae"] == pytest.approx(np.abs(predicted - y).mean(), rel=1e-4)
    assert told["loss"] == pytest.approx(np.square(predicted - y).mean() / y.var(), rel=1e-4)


def test_another_process_builds_the_model_without_the_file_and_refuses_a_changed_one(
    table, tmp_path
):
    table()
    workload = TabularMLP.from_settings({"path": "table.csv", "target": "kind"}, tmp_path)
    workload.check_data()
    there = pickle.loads(pickle.dumps(workload))
    (tmp_path / "table.csv").unlink()

    assert there.build_model({}).count_params() > 0
    with pytest.raises(WorkloadError, match=r"data.path: .*table\.csv cannot be read: No such"):
        there.load_data({})
    table(size=list(range(100, 110)))
    with pytest.raises(WorkloadError, match=r"table.csv changed during the sweep: trials"):
        workload.load_data({})


def test_a_table_that_changes_while_it_is_read_is_refused_by_the_next_trial(
    table, tmp_path, monkeypatch
):
    table()

    def change_after_reading(*arguments):
        read = read_table(*arguments)
        table(size=list(range(100, 110)))
        return read

    monkeypatch.setattr(tabular, "read_table", change_after_reading)
    workload = TabularMLP.from_settings({"path": "table.csv", "target": "kind"}, tmp_path)
    workload.check_data()
    with pytest.raises(WorkloadError, match=r"table.csv changed during the sweep: trials"):
        workload.load_data({})


REFUSED = {  # changed columns or the file's text, settings, what the message names
    "target": ({}, {"target": "kin"}, "no column 'kin'; did you mean 'kind'.*size, colour"),
    "ignored": ({}, {"ignore": ["colours"]}, "no column 'colours'; did you"),
    "no target": ({"kind": ["a", None, *["b"] * 8]}, {}, r"'kind' is missing in row\(s\) 2"),
    "one class": ({"kind": ["a"] * 10}, {}, r"'kind' holds 1 different value\(s\) in 10 rows"),
    "text as numbers": (
        {},
        {"task": "regression"},
        r"'kind' must hold finite numbers, but row\(s\) 1, 2, .* \(10 in all\) hold\(s\) 'a'",
    ),
    "infinity": (
        {"size": [1.0, float("inf"), *range(8)]},
        {},
        r"'size' must hold finite numbers, but row\(s\) 2 hold\(s\) inf",
    ),
    "empty column": ({"size": [None] * 10}, {}, r"'size'\] have no value in any"),
    "none left": ({}, {"ignore": ["size", "colour"]}, "no column besides the target 'kind'"),
    "few rows": ({}, {"validation_share": 0.01}, "10 row.s. are too few: .*none for valid"),
    "commas": (
        {"size": ["1,5"] * 10},
        {},
        r"'size' is not read as numbers, such as '1,5': .*{decimal: ','}",
    ),
    "commas to predict": (
        {"kind": ["1,5", "2"] * 5},
        {},
        "'kind' is not read as numbers, .* '1,5'",
    ),
    "no argument": ({}, {"read_csv": {"decimals": 2}}, "unexpected keyword argument 'decimals'"),
    "chunks": ({}, {"read_csv": {"chunksize": 5}}, "cannot be read as a table: .*TextFileReader"),
    "objects": (
        {"name": "t.parquet", "size": [[1], [1, 2]] * 5},
        {},
        "'size' is not read as numbers",
    ),
    "long line": ({"text": b"size,kind\n1,a\n1,2,b\n"}, {}, "Expected 2 fields in line 3, saw 3"),
    "all lines long": ({"text": b"size,kind\n1,2,a\n4,5,b\n"}, {}, "Length of header or names"),
    "no rows": ({"text": b"size,kind\n"}, {}, "has a header but no rows"),
    "empty": ({"text": b""}, {}, "cannot be read as a table: Could not determine delimiter"),
    "encoding": ({"text": b"size,kind\n\xe4,a\n"}, {}, "can't decode.*encoding: cp1252"),
    "no parquet": ({"name": "t.parquet", "text": b"a"}, {}, "t.parquet cannot be read as a table"),
}


@pytest.mark.parametrize(("changes", "settings", "match"), REFUSED.values(), ids=REFUSED)
def test_a_table_that_cannot_be_learnt_from_says_why_before_training(
    changes, settings, match, table
):
    with pytest.raises(WorkloadError, match=match):
        made(table(**changes), **settings).check_data()


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"target": "kind"}, "path: is missing: say where"),
        ({"path": "a", "target": 3}, "target: must be text, not 3"),
        ({"path": "a", "target": "b", "ignore": "c"}, "ignore: must be a list, not 'c'"),
        ({"path": "a", "taget": "b"}, "did you mean 'target'"),
    ],
)
def test_bad_settings_are_refused(settings, match):
    with pytest.raises(InvalidSettingsError, match=match):
        TabularMLP(**settings)


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(DATES.strftime("%Y-%m-%d"), id="ISO"),
        pytest.param(DATES.tz_localize("Asia/Tokyo").map(str), id="ISO with offset"),
        pytest.param(DATES, id="datetimes"),
        pytest.param(DATES.tz_localize("Asia/Tokyo"), id="datetimes with zone"),
        pytest.param(DATES.date, id="dates"),
    ],
)
def test_dates_become_days_since_1970(values, table):
    path = table("table.parquet", size=[None, *values[1:]])
    workload = made(path, ignore=["colour"])

    assert workload.properties.columns.dates == ("size",)
    numbers = workload.inputs_of(pd.read_parquet(path))["numeric"]
    assert np.isnan(numbers[0]).all()
    days = np.array((DATES[1:] - pd.Timestamp(0)) / pd.Timedelta(days=1))
    np.testing.assert_allclose(numbers[1:, 0], days, atol=0.5)


def test_a_value_that_is_no_date_is_told_to_whom_serves_the_model(table):
    workload = made(table(seen=DATES))
    rows = pd.DataFrame({"size": 1, "colour": "red", "seen": ["2020-01-01", "soon"]})
    with pytest.raises(WorkloadError, match=r"'seen' must hold dates as in ISO 8601.*2.*'soon'"):
        workload.inputs_of(rows)


AWKWARD = ("a/b %", "a_b", "stack", "functional", "class", "Größe", "A", "a", "1st")


@pytest.mark.filterwarnings("ignore:When providing `inputs` as a dict")
def test_the_served_model_takes_the_columns_and_gives_the_same(table, tmp_path):
    more = {name: ["x", "y"] * 5 for name in AWKWARD}
    seen = DATES.map(lambda day: day + pd.Timedelta("0:30:58"))
    workload = made(table(**more, sold=DATES, seen=seen))
    rows = workload.serving_rows({"numeric": np.zeros((10, 3))})
    rows.loc[0, ["colour", "a", "Größe"]] = "green", None, "z"
    rows.loc[1, ["size", "sold", "seen"]] = 1e9, None, None
    model = workload.build_model({"width": 8})
    wanted = model.predict(workload.inputs_of(rows), verbose=0)

    served = workload.serving_model(model, {})
    served.save(tmp_path / "served.keras")
    loaded = keras.models.load_model(tmp_path / "served.keras")
    assert set(loaded.input) == {"size", "colour", "sold", "seen", *AWKWARD}
    assert not loaded.compiled
    told = ColumnModel(loaded).predict(rows)
    np.testing.assert_allclose(told, wanted, rtol=1e-5, atol=1e-6)
    assert np.ptp(wanted, axis=0).min() > 0


def test_the_documented_lines_serve_a_table_with_plain_keras(tmp_path, monkeypatch, capsys):
    path = own_data_files.wine(tmp_path / "wine.csv")
    workload, rows = made(str(path), target="class"), pd.read_csv(path)
    model = workload.build_model({"width": 8})
    workload.serving_model(model, {}).save(tmp_path / "churn.keras")
    rows.drop(columns="class").to_csv(tmp_path / "new_customers.csv", index=False)
    monkeypatch.chdir(tmp_path)
    (documented,) = blocks("plain")
    capsys.readouterr()

    exec(documented, {})
    wanted = model.predict(workload.inputs_of(rows), verbose=0).argmax(axis=1)
    assert capsys.readouterr().out.endswith(f"{wanted}\n")
