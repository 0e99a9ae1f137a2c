"""The page: complete, self-contained, safe, and written whatever became of the sweep."""

import math
import re
from dataclasses import replace

import pytest
from sweeps_on_disk import Told, sweep_on_disk

from tune_tf.outcome import Outcome
from tune_tf.report import plots, write_report

EVIL = "<script>alert(1)</script>$\\frac$"
EVIL_NAME = "<script>alert(1)$\\frac$"


@pytest.fixture
def page(tmp_path):
    """Return the page of a result."""

    def of(result):
        return write_report(result, tmp_path / "report").read_text()

    return of


def test_the_page_of_a_usual_sweep_is_whole_and_refers_to_nothing_outside(usual_page):
    text = usual_page.read_text()
    assert "default-src 'none'" in text
    assert not re.findall(r"""(?:src|href)=["'](?!data:|#)[^"']*["']""", text)
    assert "@import" not in text
    assert usual_page.stat().st_size < 3_000_000
    assert list(usual_page.parent.iterdir()) == [usual_page]
    assert "started 21 September 2026, 14:13 UTC" in text
    assert "Not shown" not in text
    titles = [title for title in plots.PLOTS if title != "Pareto front"]
    before, after = ["The best trial's config", "What failed"], ["Trials", "Settings"]
    assert re.findall("<h2>(.*)</h2>", text) == [*before, *titles, *after, "Environment"]


ENDS = [
    ([], {}, "No trial was started."),
    (
        [Told([], Outcome.ERROR, cause="OSError: disk"), Told([], Outcome.ERROR)],
        {},
        "No trial reported a finite val_accuracy, so there is no best one.",
    ),
    (
        [Told([math.nan], Outcome.DIVERGED, cause="NaN"), Told([0.5])],
        {},
        "1 diverged (NaN or Inf)",
    ),
    (
        [Told([0.5], Outcome.PRUNED), Told([0.4], Outcome.PRUNED)],
        {},
        "by trial 0, which did not complete (stopped early by the scheduler)",
    ),
    (
        [Told([0.9], feasible=False), Told([0.5])],
        {"constraints": {"size": "<= 5"}},
        "1 violates the constraints (size &lt;= 5)",
    ),
    (
        [Told([0.9], feasible=False)],
        {"constraints": {"size": "<= 5"}},
        "No trial reported a finite val_accuracy and satisfied the constraints",
    ),
    (
        [Told([0.5]), Told([0.4], None), Told([0.3], Outcome.INTERRUPTED)],
        {},
        "The sweep has not ended: it was interrupted, or was running when this was written.",
    ),
    (
        [Told([0.1 * at], config={"x": 0.4 * at}) for at in range(5)],
        {"space": {"x": {"uniform": [0.0, 1.0]}}, "scheduler": {"name": "pbt"}},
        "PED-ANOVA over 5 completed trials",
    ),
]


@pytest.mark.parametrize(("told", "settings", "text"), ENDS)
def test_a_report_is_written_whatever_became_of_the_sweep(page, tmp_path, told, settings, text):
    found = page(sweep_on_disk(tmp_path, told, **settings))
    assert text in found
    assert "could not be drawn" not in found


def test_the_best_trials_are_listed_as_the_best_one_is_chosen(page, tmp_path, monkeypatch):
    monkeypatch.setattr("tune_tf.report.page._MAX_ROWS", 4)
    stopped, infeasible = Told([0.9], Outcome.PRUNED), Told([0.99], feasible=False)
    told = [stopped, Told([0.5]), Told([], Outcome.ERROR), Told([0.7]), infeasible]
    text = page(sweep_on_disk(tmp_path, told))
    assert re.findall(r'<tr><td data-key="(\d+)">', text) == ["3", "1", "0", "4"]
    assert "The 4 best of 5 trials." in text


def test_metrics_on_the_test_rows_are_told(page, tmp_path):
    result = sweep_on_disk(tmp_path, [Told([0.5]), Told([1.0])])
    tested = replace(result.trials[1], test_metrics={"test_loss": 0.25, "test_accuracy": 0.75})
    text = page(replace(result, trials=(result.trials[0], tested)))
    assert (
        "Best val_accuracy: 1, by trial 1. On the test rows, which no trial has seen: "
        "test_accuracy 0.75, test_loss 0.25."
    ) in text


def test_text_of_a_user_is_shown_and_never_run(page, tmp_path):
    space = {EVIL_NAME: {"choice": [EVIL, "b", ["</script>", EVIL]]}, "x": {"uniform": [0, 1]}}
    told = [
        Told([0.1 * at], config={EVIL_NAME: option, "x": 0.1 * at}, cause=EVIL)
        for at, option in enumerate(space[EVIL_NAME]["choice"])
    ]
    told += [Told([], Outcome.ERROR, config=told[0].config, cause=EVIL)] * 2
    text = page(sweep_on_disk(tmp_path, told, space=space))
    assert "<script>alert" not in text
    assert "could not be drawn" not in text
    assert "&lt;script&gt;alert(1)" in text


def test_secrets_are_not_in_the_page(page, tmp_path):
    secret, named = "hunter2-and-more", "several plain words"
    space = {"source": {"choice": [f"postgresql://me:{secret}@db/x", "b"]}}
    told = [
        Told([0.1], config={"source": space["source"]["choice"][0]}),
        Told([], Outcome.ERROR, config={"source": "b"}, cause=f"psql://me:{secret}@db: {named}"),
    ]
    data = {"path": "a.csv", "login": {"pwd": named}}
    text = page(sweep_on_disk(tmp_path, told, space=space, data=data))
    assert "me:***@db" in text
    assert secret not in text
    assert named not in text


def test_a_fault_in_one_plot_costs_no_other(page, usual_sweep, monkeypatch):
    monkeypatch.setitem(plots.PLOTS, "History", lambda _: 1 / 0)
    text = page(usual_sweep)
    assert "it could not be drawn: ZeroDivisionError" in text
    assert text.count("Not shown") == 1
