"""Files of tables in the formats that people have."""

from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine

from tune_tf.errors import WorkloadError
from tune_tf.workloads.table_file import TextFormat, complete_format, read_table


@pytest.fixture(scope="module")
def wine():
    """A real table, with texts that no ASCII file holds and whole numbers up to thousands."""
    table = load_wine(as_frame=True).frame
    table["Größe"] = [["klein", "groß; rund", "süß, rot"][row % 3] for row in range(len(table))]
    return table


@pytest.mark.parametrize("quoting", [0, 2], ids=["few quotes", "texts in quotes"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"], ids=repr)
def test_a_table_in_any_format_gives_the_same_numbers(quoting, line_end, wine, tmp_path):
    path = tmp_path / "wine.csv"
    encodings = ["utf-8", "utf-8-sig", "cp1252", "utf-16"]
    for separator, decimal, encoding in product(",;\t|", ".,", encodings):
        wine.to_csv(
            path,
            sep=separator,
            decimal=decimal,
            encoding=encoding,
            quoting=quoting,
            lineterminator=line_end,
            index=False,
        )
        if separator == decimal:  # without quotes nobody can read it
            wine.map(lambda value: str(value).replace(".", ",")).to_csv(
                path, encoding=encoding, lineterminator=line_end, index=False
            )
        assert complete_format(path, TextFormat()) == TextFormat(separator, decimal, encoding)
        pd.testing.assert_frame_equal(read_table(path), wine, check_dtype=False, rtol=0)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ('a;b\n"1.234,5";x\n2;y\n', [1234.5, 2]),
        ('a,b\n"1,234.5",x\n2,y\n', [1234.5, 2]),
        ("a;b;c\n1.234;x;0,5\n2.000.000;y;1\n", [1234, 2e6]),
        ("a;b\n1,5e3;x\n-2,5;y\n", [1500, -2.5]),
    ],
)
def test_thousands_in_groups_are_numbers(text, numbers, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(text)
    np.testing.assert_array_equal(read_table(path)["a"], numbers)


def test_dates_with_dots_stay_texts_beside_decimal_commas(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a;b\n01.02.2020;0,5\n02.02.2020;1.500,5\n")
    table = read_table(path)
    assert table["a"].tolist() == ["01.02.2020", "02.02.2020"]
    assert table["b"].tolist() == [0.5, 1500.5]


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"a;b\n1,234;x\n2,345;y\n", 'decimal mark is unclear: .*decimal: "," or decimal: "."'),
        (b"a;b\n1,5;2.5\n", r"'b' holds '\.' before fractions"),
        (b"a,b;c\n1,2;3\n", "may be separated by ',' or ';': .*separator: \",\""),
        ("a,b\nä,1\n".encode("utf-16-le"), "encoding: utf-16-le"),
        (b"a,b\n\x81\x8d,1\n", "text neither in UTF-8 nor in Windows'"),
    ],
)
def test_an_ambiguous_format_is_refused_with_the_line_to_write(content, match, tmp_path):
    path = Path(tmp_path / "t.csv")
    path.write_bytes(content)
    with pytest.raises(WorkloadError, match=match):
        read_table(path)


def test_a_given_format_is_not_guessed(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b"a;b\n1,234;\xe4\n2,345;y\n")
    table = read_table(path, TextFormat(decimal=","))
    assert table["a"].tolist() == [1.234, 2.345]
    assert read_table(path, TextFormat(decimal="."))["a"].tolist() == [1234, 2345]
    assert read_table(path, TextFormat(decimal=",", encoding="cp1250"))["b"][0] == "ä"
