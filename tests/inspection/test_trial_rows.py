"""Trials as rows: filtered, sorted, written."""

import csv
import io

import pytest
from sweep_in_progress import SweepInProgress

from tune_tf.errors import InvalidSettingsError
from tune_tf.inspection import SweepView, TrialRows
from tune_tf.inspection.trial_rows import TrialFilter


@pytest.fixture
def rows(ended: SweepInProgress):
    return TrialRows.of(SweepView.of(ended.folder))


def numbers(rows):
    return [row["number"] for row in rows.rows]


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("val_accuracy", [2, 0, 1, 3]),
        ("number", [0, 1, 2, 3]),
        ("iterations", [1, 3, 0, 2]),
        ("momentum", [1, 3, 0, 2]),  # the others have none: they are of adamw
        ("optimizer", [0, 2, 1, 3]),
        ("block.width", [0, 1, 2, 3]),
        ("mlflow_run_id", [1, 0, 2, 3]),
    ],
)
def test_rows_are_sorted_by_any_field_and_by_an_objective_the_best_first(rows, field, expected):
    assert numbers(rows.sorted(field)) == expected


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([], [0, 1, 2, 3]),
        (["outcome=completed"], [0, 1, 2, 3]),
        (["outcome!=completed"], []),
        (["val_accuracy>=0.4"], [0, 1, 2]),
        (["val_accuracy > 0.4", "iterations<3"], [0]),
        (["optimizer=sgd"], [1, 3]),
        (["config/optimizer==SGD"], [1, 3]),
        (["momentum!=0.9"], [0, 2]),
        (["block/width<=9"], [0, 1]),
        (["feasible=true"], [0, 1, 2, 3]),
    ],
)
def test_rows_are_kept_that_meet_all_conditions(rows, conditions, expected):
    assert numbers(rows.where(conditions)) == expected


def test_a_limit_keeps_the_first(rows):
    assert numbers(rows.sorted("val_accuracy").limited(2)) == [2, 0]


def test_inactive_parameters_are_left_out(rows):
    assert "config/momentum" not in rows.rows[0]
    assert rows.rows[1]["config/momentum"] == 0.9


@pytest.mark.parametrize("text", ["outcome", "=completed", "", "a b=3"])
def test_a_text_that_is_no_condition_is_refused(rows, text):
    with pytest.raises(InvalidSettingsError, match="a condition must be FIELD=VALUE"):
        rows.where([text])


def test_an_unknown_field_is_refused_with_a_near_one(rows):
    with pytest.raises(InvalidSettingsError, match="no field 'val_acuracy'; did you mean"):
        rows.sorted("val_acuracy")
    with pytest.raises(InvalidSettingsError, match="did you mean 'optimizer'"):
        rows.where(["optimiser=sgd"])


@pytest.mark.parametrize(
    ("condition", "value", "holds"),
    [
        ("a=1", 1.0, True),
        ("a=1", True, False),
        ("a=true", True, True),
        ("a<2", "many", False),
        ("a<n", "many", True),
        ("a<2", float("nan"), False),
        ("a=x", None, False),
        ("a!=x", None, True),
    ],
)
def test_a_condition_compares_numbers_as_numbers_and_text_as_text(condition, value, holds):
    assert TrialFilter.parse(condition).holds(value) is holds


def test_csv_has_every_field_and_a_line_a_trial(rows):
    lines = list(csv.DictReader(io.StringIO(rows.to_csv())))
    assert [line["val_accuracy"] for line in lines] == ["0.7", "0.4", "0.8", "0.2"]
    assert list(lines[0])[:3] == ["number", "trial_id", "outcome"]
    assert [line["config/momentum"] for line in lines] == ["", "0.9", "", "0.9"]


def test_a_spreadsheet_runs_no_cell(rows):
    for row in rows.rows:
        row["outcome"] = "=1+1"
    lines = list(csv.DictReader(io.StringIO(rows.to_csv())))
    assert {line["outcome"] for line in lines} == {"'=1+1"}
