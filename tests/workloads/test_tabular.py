"""Tables of users' own."""

import os
import pickle
import shutil
import subprocess
import sys

import keras
import numpy as np
import own_data_files
import pandas as pd
import pytest

from tune_tf.errors import InvalidSettingsError, WorkloadError
from tune_tf.workloads.column_model import ColumnModel, dates_of
from tune_tf.workloads.tabular import TabularMLP

TABLE = {
    "size": [1.0, 2.0, None, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0],
    "colour": ["red", "blue", "red", None, "blue", "red", "red", "blue", "red", "blue"],
    "kind": ["a", "b"] * 5,
}


@pytest.fixture
def table(tmp_path):
    """Write a table of ten rows with some columns changed; return its path."""

    def write(name="table.csv", **changes):
        path = tmp_path / name
        frame = pd.DataFrame({**TABLE, **changes})
        if path.suffix == ".parquet":
            frame.to_parquet(path)
        else:
            frame.to_csv(path, index=False)
        return str(path)

    return write


def made(path, **settings):
    return TabularMLP(path=path, **{"target": "kind", **settings})


@pytest.mark.parametrize("name", ["wine.csv", "wine.parquet", "wine.tsv"])
def test_numbers_and_categories_are_found_by_their_type(name, tmp_path):
    path = own_data_files.wine(tmp_path / "wine.csv")
    if name.endswith(".tsv"):
        pd.read_csv(path).to_csv(tmp_path / name, sep="\t", index=False)
    if name.endswith(".parquet"):
        own_data_files.wine(tmp_path / name)
    workload = made(str(tmp_path / name), target="class")

    assert len(workload.properties.numeric.names) == 13
    assert workload.properties.categorical.categories == {"region": ("north", "south")}
    assert workload.properties.classes == ("barbera", "barolo", "grignolino")


def test_the_parts_have_their_shares_of_each_class_and_no_row_in_common(tmp_path):
    data = made(str(own_data_files.wine(tmp_path / "wine.csv")), target="class").load_data({})

    parts = [data.train, data.validation, data.test]
    assert [len(y) for _, y in parts] == [124, 36, 18]
    shares = [np.bincount(y) / len(y) for _, y in parts]
    assert np.ptp(shares, axis=0).max() < 0.06
    rows = {tuple(row) for x, _ in parts for row in np.nan_to_num(x["numeric"])}
    assert len(rows) == 178


def test_columns_are_standardised_by_training_rows_alone(table):
    workload = made(table())
    (x, _), properties = workload.load_data({}).train, workload.properties

    sizes = x["numeric"][:, 0]
    filled = np.where(np.isnan(sizes), np.nanmedian(sizes), sizes)
    assert properties.numeric.medians[0] == np.nanmedian(sizes)
    assert properties.numeric.means[0] == pytest.approx(filled.mean())
    assert properties.numeric.variances[0] == pytest.approx(filled.var())


def test_the_model_fills_in_missing_numbers_itself_and_tells_them_apart(table):
    rows = [None, 2.0, None, 4.0, 5.0, None, 7.0, 8.0, None, 10.0]
    workload = made(table(size=rows), columns=["size"])
    model, median = workload.build_model({}), workload.properties.numeric.medians[0]

    missing, given = model.predict({"numeric": np.array([[np.nan], [median]])}, verbose=0)
    assert np.isfinite(missing).all()
    assert not np.allclose(missing, given)


def test_a_category_that_no_training_row_has_gets_a_code_of_its_own(table):
    workload = made(table())
    rows = pd.DataFrame({"size": [1, 1, 1, 1], "colour": ["blue", "red", "green", None]})

    codes = workload.inputs_of(rows)["categorical"][:, 0]
    assert codes.tolist() == [2, 3, 0, 1]
    assert workload.properties.categorical.num_codes == 4


def test_codes_of_several_columns_do_not_overlap(table):
    workload = made(table(shape=["x", "y"] * 5))
    x, _ = workload.load_data({}).train

    assert set(x["categorical"][:, 0]) <= {0, 1, 2, 3}
    assert set(x["categorical"][:, 1]) <= {4, 5, 6, 7}


def test_missing_values_do_not_change_the_category_of_a_number(table):
    workload = made(table(code=[1, 2] * 4 + [None, 1]), categorical=["code"], columns=["code"])

    rows = pd.DataFrame({"code": [1, 2]})
    assert workload.properties.categorical.categories == {"code": ("1", "2")}
    assert workload.inputs_of(rows)["categorical"].tolist() == [[2], [3]]


def test_a_column_that_names_rows_is_warned_of(table, caplog):
    made(table(colour=[f"wine {row}" for row in range(10)])).check_data()
    assert not caplog.records

    path = table("long.csv", **{name: values * 4 for name, values in TABLE.items()})
    frame = pd.read_csv(path).assign(colour=[f"wine {row}" for row in range(40)])
    frame.to_csv(path, index=False)
    made(path).check_data()
    assert "column 'colour' holds 28 distinct texts in 28 training rows" in caplog.text


@pytest.mark.parametrize(
    ("target", "task", "num_classes"),
    [
        pytest.param(["a", "b"] * 5, "auto", 2, id="text"),
        pytest.param([True, False] * 5, "auto", 2, id="truth"),
        pytest.param([3, 1, 7, 3, 1] * 2, "auto", 3, id="few whole numbers"),
        pytest.param([0.5, 1.5] * 5, "auto", None, id="numbers"),
        pytest.param([1, 2] * 5, "regression", None, id="told regression"),
        pytest.param(pd.array([1, 2] * 5, "Int64"), "auto", 2, id="nullable whole numbers"),
        pytest.param([1.0, 2.0] * 5, "classification", 2, id="told classification"),
    ],
)
def test_what_is_learnt_follows_from_the_target(target, task, num_classes, table):
    workload = made(table("table.parquet", kind=target), task=task)

    assert workload.properties.head.num_classes == num_classes
    loss = workload.build_model({}).loss
    assert (loss == "mse") is (num_classes is None)


def test_numbers_are_predicted_in_the_unit_of_the_target(table):
    workload = made(table(kind=[1000.5 + 3 * row for row in range(10)]), test_share=0)
    model = workload.build_model({})
    x, y = workload.load_data({}).train

    predicted = model.predict(x, verbose=0)[:, 0]
    assert np.abs(predicted - y.mean()).max() < 20 * y.std()
    told = model.evaluate(x, y, return_dict=True, verbose=0)
    assert told["mae"] == pytest.approx(np.abs(predicted - y).mean(), rel=1e-4)
    assert told["loss"] == pytest.approx(np.square(predicted - y).mean() / y.var(), rel=1e-4)


def test_the_model_follows_the_config(table):
    model = made(table()).build_model({"width": 5, "num_layers": 2, "embedding_dim": 3})

    assert [layer.units for layer in model.layers if isinstance(layer, keras.layers.Dense)] == [
        5,
        5,
        2,
    ]
    (embedding,) = [each for each in model.layers if isinstance(each, keras.layers.Embedding)]
    assert embedding.output_dim == 3


def test_an_exported_model_needs_nothing_of_ours(table, tmp_path):
    workload = made(table())
    model = workload.build_model({})
    x, _ = workload.load_data({}).train

    model.export(tmp_path / "served", verbose=False)
    model.save(tmp_path / "model.keras")

    expected = model.predict(x, verbose=0)
    loaded = keras.models.load_model(tmp_path / "model.keras", compile=False)
    np.testing.assert_allclose(loaded.predict(x, verbose=0), expected, rtol=1e-5)


def test_another_process_builds_the_model_without_the_file(table, tmp_path):
    workload = made(table())
    workload.check_data()
    there = pickle.loads(pickle.dumps(workload))
    (tmp_path / "table.csv").unlink()

    assert there.build_model({}).count_params() > 0
    with pytest.raises(WorkloadError, match=r"there is no file .*table\.csv"):
        there.load_data({})


def test_a_file_that_changed_is_refused(table):
    workload = made(table())
    workload.check_data()
    table(size=list(range(100, 110)))

    with pytest.raises(WorkloadError, match=r"table.csv changed during the sweep: it had 1 fi"):
        workload.load_data({})


def test_paths_are_relative_to_the_folder_of_the_sweep_file(table, tmp_path):
    table()
    workload = TabularMLP.from_settings({"path": "table.csv", "target": "kind"}, tmp_path)

    assert workload.properties.classes == ("a", "b")


@pytest.mark.parametrize(
    ("changes", "settings", "match"),
    [
        pytest.param(
            {}, {"target": "kin"}, "no column 'kin'; did you mean 'kind'.*size, colour", id="target"
        ),
        pytest.param({}, {"ignore": ["colours"]}, "no column 'colours'; did you", id="ignored"),
        pytest.param(
            {"kind": ["a", None, *["b"] * 8]},
            {},
            r"'kind' is missing in row\(s\) 2",
            id="no target",
        ),
        pytest.param({"kind": ["a"] * 10}, {}, "'kind' holds 'a' in all rows", id="one class"),
        pytest.param(
            {},
            {"task": "regression"},
            r"'kind' must hold finite numbers, but row\(s\) 1, 2, .* \(10 in all\) hold\(s\) 'a'",
            id="text as numbers",
        ),
        pytest.param(
            {"kind": [0.5, 1] * 5},
            {"task": "classification"},
            r"'kind' must hold classes .*, but row\(s\) 1, 3, 5, 7, 9 hold\(s\) 0.5",
            id="numbers as classes",
        ),
        pytest.param(
            {"kind": [*(float(row) for row in range(9)), "oops"]},
            {"task": "regression"},
            r"row\(s\) 10 hold\(s\) 'oops'",
            id="one text among numbers",
        ),
        pytest.param(
            {"size": ["1", "2", "x", *"4567890"]},
            {"numeric": ["size"]},
            r"column 'size' must hold finite numbers, but row\(s\) 3 hold\(s\) 'x'",
            id="text in a column of numbers",
        ),
        pytest.param(
            {"size": [1.0, float("inf"), *range(8)]},
            {},
            r"'size' must hold finite numbers, but row\(s\) 2 hold\(s\) inf",
            id="infinity",
        ),
        pytest.param({"size": [None] * 10}, {}, "'size' have no value in any", id="empty column"),
        pytest.param(
            {},
            {"ignore": ["size", "colour"]},
            "no column besides the target 'kind'",
            id="none left",
        ),
        pytest.param(
            {}, {"validation_share": 0.01}, "10 row.s. are too few: .*none for valid", id="few rows"
        ),
    ],
)
def test_a_table_that_cannot_be_learnt_from_says_why_before_training(
    changes, settings, match, table
):
    with pytest.raises(WorkloadError, match=match):
        made(table(**changes), **settings).check_data()


def test_a_column_of_lists_is_refused_by_name(table):
    path = table("table.parquet", size=[[1], [1, 2]] * 5)
    with pytest.raises(WorkloadError, match="column 'size' holds neither numbers nor text, but"):
        made(path).check_data()


@pytest.mark.parametrize(
    ("text", "match"),
    [
        pytest.param("a,b\n1,2\n1,2,3\n", r"line 3 has 3 value\(s\) but .* 2", id="long line"),
        pytest.param("a,b\n1,2\n1\n", r"line 3 has 1 value\(s\) but .* 2", id="short line"),
        pytest.param("a,b\n1,2,3\n4,5,6\n", r"line 2 has 3 value\(s\) but .* 2", id="all long"),
        pytest.param("a,b\n", "has a header but no rows", id="no rows"),
        pytest.param("", "file .*t.csv is empty", id="empty"),
    ],
)
def test_a_broken_csv_file_is_told_by_its_line(text, match, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(WorkloadError, match=match):
        made(str(path), target="b").check_data()


def test_what_is_no_parquet_is_told(tmp_path):
    path = tmp_path / "t.parquet"
    path.write_text("a,b\n")
    with pytest.raises(WorkloadError, match=r"t\.parquet cannot be read as Parquet"):
        made(str(path)).check_data()


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        pytest.param({"target": "kind"}, "path: is missing: say where", id="no path"),
        pytest.param({"path": "a", "target": 3}, "target: must be text, not 3", id="target"),
        pytest.param(
            {"path": "a", "target": "b", "ignore": "c"}, "must be a list of names", id="names"
        ),
        pytest.param(
            {"path": "a", "target": "b", "columns": ["b"]}, "holds the target 'b'", id="itself"
        ),
        pytest.param(
            {"path": "a", "target": "b", "numeric": ["c"], "categorical": ["c"]},
            "numeric both hold c",
            id="two kinds",
        ),
        pytest.param(
            {"path": "a", "target": "b", "validation_share": 0.5, "test_share": 0.5},
            "together they must be less than 1",
            id="shares",
        ),
        pytest.param({"path": "a", "taget": "b"}, "did you mean 'target'", id="misspelt"),
    ],
)
def test_bad_settings_are_refused(settings, match):
    with pytest.raises(InvalidSettingsError, match=match):
        TabularMLP(**settings)


def as_trained(workload, rows):
    """Return what a model that trial trains makes of rows, and its served one of their columns."""
    model = workload.build_model({"width": 8})
    served = workload.serving_model(model, {})
    numbers = {name: rows[name].to_numpy("float32") for name in workload.properties.numeric.names}
    texts = {
        name: rows[name].fillna("").astype(str).to_numpy(object)
        for name in workload.properties.categorical.categories
    }
    return (
        model.predict(workload.inputs_of(rows), verbose=0),
        served.predict({**numbers, **texts}, verbose=0),
        served,
    )


@pytest.mark.parametrize(
    "settings", [{}, {"columns": ["size"]}, {"columns": ["colour", "a/b %"]}], ids=str
)
def test_the_served_model_takes_the_columns_and_gives_the_same(settings, table, tmp_path):
    workload = made(table(**{"a/b %": ["x", "y"] * 5}), **settings)
    rows = pd.DataFrame(
        {
            "size": [1, None, 3, 1e9],
            "colour": ["blue", "red", "green", None],
            "a/b %": ["y", None, "x", "z"],
        }
    )
    wanted, told, served = as_trained(workload, rows)
    np.testing.assert_array_equal(told, wanted)
    assert np.ptp(wanted, axis=0).max() > 0

    served.save(tmp_path / "served.keras")
    loaded = keras.models.load_model(tmp_path / "served.keras")
    assert set(loaded.input) == set(settings.get("columns", ["size", "colour", "a/b %"]))
    assert not loaded.compiled


def test_columns_may_be_called_as_keras_calls_something_else(table):
    names = ["a/b", "a_b", "stack", "add", "cast_1", "string_lookup", "functional"]
    more = {name: ["x", "y"] * 5 for name in names}
    workload = made(table(**more))
    rows = pd.DataFrame({**TABLE, **more})

    wanted, told, served = as_trained(workload, rows)
    np.testing.assert_array_equal(told, wanted)
    assert set(served.input) == {"size", "colour", *names}


DATES = pd.date_range("2018-03-01", periods=10, freq="97D")


@pytest.mark.parametrize(
    ("values", "date_format"),
    [
        pytest.param(DATES.strftime("%Y-%m-%d"), "ISO8601", id="ISO"),
        pytest.param(DATES.strftime("%Y-%m-%dT%H:%M:%SZ"), "ISO8601", id="ISO with time in UTC"),
        pytest.param(DATES.tz_localize("Asia/Tokyo").map(str), "ISO8601", id="ISO with offset"),
        pytest.param(DATES.strftime("%d.%m.%Y"), "%d.%m.%Y", id="day first with dots"),
        pytest.param(DATES.strftime("%d.%m.%Y %H:%M"), "%d.%m.%Y %H:%M", id="with minutes"),
        pytest.param(DATES.strftime("%d/%m/%Y"), "%d/%m/%Y", id="day first with slashes"),
        pytest.param(DATES.strftime("%m/%d/%Y"), "%m/%d/%Y", id="month first with slashes"),
        pytest.param(DATES.strftime("%d %b %Y"), "%d %b %Y", id="month by name"),
        pytest.param(DATES.strftime("%d-%b-%Y").str.upper(), "%d-%b-%Y", id="month in capitals"),
        pytest.param(DATES.strftime("%b %d, %Y"), "%b %d, %Y", id="month first by name"),
        pytest.param(DATES.strftime("%b %d %Y %H:%M"), "%b %d %Y %H:%M", id="name and minutes"),
        pytest.param(DATES, "ISO8601", id="datetimes"),
        pytest.param(DATES.tz_localize("Asia/Tokyo"), "ISO8601", id="datetimes with zone"),
        pytest.param(DATES.date, "ISO8601", id="dates"),
    ],
)
def test_dates_become_days_and_periods(values, date_format, table):
    path = table("table.parquet", size=[None, *values[1:]])
    workload = made(path, columns=["size"])
    zone = getattr(pd.to_datetime(values[1:2], format=date_format), "tz", None)

    assert workload.date_formats == {"size": date_format}
    assert "time of year sin" in workload.properties.numeric.names[-2]
    numbers = workload.inputs_of(pd.read_parquet(path))["numeric"]
    assert np.isnan(numbers[0]).all()
    np.testing.assert_allclose(np.diff(numbers[1:, 0]), 97)
    position = workload.properties.numeric.names.index("size (weekday sin)")
    weekday = np.arctan2(*numbers[1:, position : position + 2].T) * 7 / (2 * np.pi)
    utc = DATES if zone is None else DATES.tz_localize(zone).tz_convert("UTC")
    assert (weekday.round() % 7).tolist() == (
        (utc.day_of_week[1:] + 4) % 7
    ).tolist()  # from Thursday


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(["Mar", "May", "March", "Dec"], id="months"),
        pytest.param(["5 Mar", "31 May", "1 March", "2 Dec"], id="days without a year"),
        pytest.param(["MAY-12", "MAR-05", "DEC-24", "JUN-11"], id="codes"),
        pytest.param(["12-MAY-4711", "5-MAR-4712", "1-DEC-4713", "2-JUN-4714"], id="numbers"),
        pytest.param(["5 Mar 2024", "31 May 2024", "1 Mar 2024", "soon"], id="one that is none"),
        pytest.param(["12 Mai 2024", "5 Mar 2024", "1 Dez 2024", "2 Jun 2024"], id="German"),
    ],
)
def test_texts_with_names_of_months_stay_texts(values, table):
    columns = made(table(size=(values * 3)[:10])).properties.columns
    assert list(columns.categorical.categories) == ["size", "colour"]


def test_one_column_may_hold_whole_and_abbreviated_names_of_months(table):
    texts = ["5 May 2024", "9 March 2024", "9 mar 2024", "30 Sept 2024", "30 SEPTEMBER 2024"] * 2
    workload = made(table(size=texts))
    assert workload.date_formats == {"size": "%d %b %Y"}
    numbers = workload.inputs_of(pd.DataFrame(TABLE).assign(size=texts))["numeric"]
    assert numbers[:5, 0].tolist() == [57, 0, 0, 205, 205]


def test_dates_with_two_digits_of_a_year_are_left_out_with_the_line_to_write(table, caplog):
    path = table(born=DATES.strftime("%d-%b-%y"), size=range(10))
    assert "born" not in made(path).properties.columns.all_names
    assert "no common format that is known (the first is '01-Mar-18')" in caplog.text
    assert made(path, dates={"born": "%d-%b-%y"}).date_formats == {"born": "%d-%b-%y"}


@pytest.mark.skipif(not shutil.which("localedef"), reason="no locale can be made")
def test_names_of_months_are_english_in_any_locale(tmp_path):
    made = ["localedef", "-i", "de_DE", "-f", "UTF-8", str(tmp_path / "de_DE.UTF-8")]
    subprocess.run(made, check=True, capture_output=True)
    code = (
        "import locale, pandas as pd; locale.setlocale(locale.LC_ALL, 'de_DE.UTF-8')\n"
        "from tune_tf.workloads.column_model import dates_of, unix_times_of\n"
        "times = unix_times_of(pd.Series(['5 May 2024', '9 March 2024']), '%d %b %Y')\n"
        "print(times.tolist(), dates_of(times, '%d %b %Y').tolist())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "LOCPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[1714867200, 1709942400] ['05 May 2024', '09 Mar 2024']\n"


def test_ambiguous_and_mixed_dates_are_left_out_with_the_line_to_write(table, caplog):
    both = pd.date_range("2020-01-01", periods=10).strftime("%d/%m/%Y")
    mixed = ["2020-01-31", "31.01.2020"] * 5
    workload = made(table(both=both, mixed=mixed))

    assert workload.properties.columns.all_names == ("size", "colour")
    assert (
        'may be %d/%m/%Y or %m/%d/%Y; write under data: dates: {"both": "%d/%m/%Y"}' in caplog.text
    )
    assert "column 'mixed' is left out: its dates have no common format" in caplog.text
    told = made(table(both=both), dates={"both": "%m/%d/%Y"}, ignore=["size"])
    assert told.date_formats == {"both": "%m/%d/%Y"}
    with pytest.raises(
        WorkloadError, match=r"'mixed' must hold dates .* row\(s\) 2, 4, 6, 8, 10 hold"
    ):
        made(table(mixed=mixed), dates={"mixed": "%Y-%m-%d"}).check_data()


def test_what_is_unusual_is_told_by_name(tmp_path, caplog):
    path = tmp_path / "t.csv"
    path.write_text(
        "a;a;b;y\n" + "".join(f"{n},5;1;{n % 3};{'p' if n else 'q'}\n" for n in range(20))
    )
    made(str(path), target="y").check_data()
    assert 'is read with separator: ";", decimal: ",", encoding: utf-8; if that is' in caplog.text
    assert "has 1 name of several columns: a; the further ones are called a.1" in caplog.text
    assert "column(s) 'a.1' have one value" in caplog.text
    assert "class(es) 'q' of 'y' have one row" in caplog.text


@pytest.mark.parametrize("kind", ["categorical", "ignore"])
def test_a_column_of_dates_may_be_something_else(kind, table, caplog):
    texts = DATES.strftime("%Y-%m-%d")
    assert not made(table(size=texts), **{kind: ["size"]}).date_formats
    assert not caplog.records


def test_the_served_model_computes_the_numbers_of_dates(table):
    times = pd.date_range("2018-03-01 23:59:58", periods=10, freq="2351h").strftime("%FT%T")
    workload = made(table(size=times, sin=[1, 2] * 5, floor=["a", "b"] * 5))
    rows = pd.read_csv(workload.settings.path).assign(size=[None, *times[1:]])
    model = workload.build_model({})
    served = ColumnModel(workload.serving_model(model, {}), workload.date_formats)

    assert "time of day" in workload.properties.numeric.names[2]
    wanted = model.predict(workload.inputs_of(rows), verbose=0)
    np.testing.assert_allclose(served.predict(rows), wanted, atol=1e-6)
    columns = workload.serving_rows(workload.inputs_of(rows))
    there = dates_of(columns["size"], "ISO8601")
    assert there[0] is None
    late = pd.to_datetime(there[1:]) - pd.to_datetime(times[1:])
    assert np.abs(late.dt.total_seconds()).max() <= 60


def test_a_number_has_one_text_whatever_else_is_in_its_column(table):
    workload = made(table(size=[1.5, 2.0] * 5), categorical=["size"], columns=["size"])
    codes = workload.inputs_of(pd.DataFrame({"size": [1.5, 2.0]}))["categorical"]
    assert codes[1] == workload.inputs_of(pd.DataFrame({"size": [2]}))["categorical"]


def test_an_empty_text_may_be_a_category(table):
    workload = made(table("table.parquet", colour=["", "red"] * 4 + [None, "red"]))
    rows = pd.DataFrame({"size": [1.0, 1.0], "colour": ["", "red"]})

    assert workload.properties.categorical.categories == {"colour": ("", "red")}
    wanted, told, _ = as_trained(workload, rows)
    np.testing.assert_array_equal(told, wanted)


def test_rows_of_training_become_columns_again(table):
    workload = made(table())
    frame = pd.DataFrame(TABLE)
    rows = workload.serving_rows(workload.inputs_of(frame))

    np.testing.assert_array_equal(rows["size"], frame["size"].to_numpy("float32"))
    assert rows["colour"].tolist() == frame["colour"].fillna("").tolist()
