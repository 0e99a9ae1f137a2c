"""The trials as rows."""

import csv

import pytest
from sweeps_on_disk import Told, sweep_on_disk

from tune_tf.outcome import Outcome
from tune_tf.report.page import TrialTable, write_csv
from tune_tf.report.report_data import ReportData


@pytest.fixture
def record(tmp_path):
    """Five trials of every rank."""
    told = [
        Told([0.9], Outcome.PRUNED),
        Told([0.5]),
        Told([], Outcome.ERROR, cause="it broke"),
        Told([0.7], config={"optimizer": "sgd", "layers": [64, 32], "norm": True}),
        Told([0.99], feasible=False),
    ]
    return ReportData.of(sweep_on_disk(tmp_path, told))


def test_rows_are_ranked_as_the_best_trial_is_chosen(record):
    assert [row[0].text for row in TrialTable.of(record).rows] == ["3", "1", "0", "4", "2"]


def test_the_page_holds_the_best_rows_and_tells_of_the_others(record):
    table = TrialTable.of(record, limit=2)
    assert (len(table.rows), table.num_trials) == (2, 5)


def test_a_cell_sorts_by_number_and_an_empty_one_by_nothing(record):
    table = TrialTable.of(record)
    value = table.headers.index("val_accuracy")
    assert [row[value].key for row in table.rows] == [0.7, 0.5, 0.9, 0.99, None]


def test_the_file_holds_all_trials_in_order_of_number(record, tmp_path):
    write_csv(record, tmp_path / "trials.csv")
    with (tmp_path / "trials.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["number"] for row in rows] == ["0", "1", "2", "3", "4"]
    assert rows[2]["cause"] == "it broke"
    assert rows[3]["config/layers"] == "[64, 32]"
    assert rows[3]["config/norm"] == "True"
    assert rows[3]["config/momentum"] == ""
    assert (rows[0]["node"], rows[0]["trained_s"]) == ("node-1", "2.0")


def test_a_spreadsheet_runs_no_cell_of_the_file(tmp_path):
    evil = '=HYPERLINK("http://x","y")'
    told = [Told([0.5], config={"a": evil, "b": -1.5, "c": ["@x"]}, host="+1"), Told([-0.5])]
    write_csv(ReportData.of(sweep_on_disk(tmp_path, told)), tmp_path / "trials.csv")
    with (tmp_path / "trials.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert (rows[0]["config/a"], rows[0]["node"]) == (f"'{evil}", "'+1")
    assert (rows[0]["config/b"], rows[0]["config/c"]) == ("-1.5", '["@x"]')
    assert rows[1]["val_accuracy"] == "-0.5"


def test_a_sweep_without_trials_has_a_file_all_the_same(tmp_path):
    write_csv(ReportData.of(sweep_on_disk(tmp_path, [])), tmp_path / "trials.csv")
    assert (tmp_path / "trials.csv").is_file()
