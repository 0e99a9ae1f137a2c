"""The report as a whole: its files, and that it is written whatever became of the sweep."""

import math
import re

import pytest
from PIL import Image
from sweeps_on_disk import START_S, Told, sweep_on_disk

from tune_tf.outcome import Outcome
from tune_tf.report import write_report

PLOTS = [
    "history",
    "importances",
    "learning_curves",
    "parallel_coordinates",
    "rungs",
    "slices",
    "timeline",
]
EVIL = "<script>alert(1)</script>$\\frac$"
EVIL_NAME = "<script>alert(1)$\\frac$"
LOSS = {"objective": {"metric": "loss", "mode": "min"}}
TWO = {"objective": [{"metric": "loss", "mode": "min"}, {"metric": "accuracy", "mode": "max"}]}


def page_of(result, folder):
    return write_report(result, folder / "report")["report.html"].read_text()


def test_the_files_are_named_as_they_are_called_in_a_store(usual_report):
    expected = {"report.html", "trials.csv"}
    expected |= {f"plots/{name}.{ending}" for name in PLOTS for ending in ("html", "png")}
    assert set(usual_report) == expected
    assert all(file.stat().st_size for file in usual_report.values())


@pytest.mark.parametrize("name", PLOTS)
def test_a_png_is_wide_enough_to_read(usual_report, name):
    with Image.open(usual_report[f"plots/{name}.png"]) as image:
        assert image.width == 1200


@pytest.mark.parametrize("name", ["report.html", *(f"plots/{name}.html" for name in PLOTS)])
def test_a_page_refers_to_nothing_outside_itself_and_may_not(usual_report, name):
    text = usual_report[name].read_text()
    assert "default-src 'none'" in text
    assert not re.findall(r"""(?:src|href)=["'](?!data:|#)[^"']*["']""", text)
    assert "@import" not in text


def test_the_drawing_of_a_plot_page_follows_its_theme(usual_report):
    text = usual_report["plots/history.html"].read_text()
    assert "fill: var(--ink)" in text


def test_all_pages_together_are_light(usual_report):
    assert sum(file.stat().st_size for file in usual_report.values()) < 6_000_000


ENDS = {
    "nothing was started": ([], {}, "No trial was started."),
    "all failed": (
        [Told([], Outcome.ERROR, cause="OSError: disk"), Told([], Outcome.ERROR)],
        {},
        "No trial reported a finite val_accuracy, so there is no best one.",
    ),
    "NaN": (
        [Told([math.nan], Outcome.DIVERGED, cause="NaN"), Told([0.5])],
        {},
        "1 diverged (NaN or Inf)",
    ),
    "only stopped ones": (
        [Told([0.5], Outcome.PRUNED), Told([0.4], Outcome.PRUNED)],
        {},
        "by trial 0, which did not complete (stopped early by the scheduler)",
    ),
    "infeasible": (
        [Told([0.9], feasible=False), Told([0.5])],
        {"constraints": {"size": "<= 5"}},
        "1 violates the constraints (size &lt;= 5)",
    ),
    "nothing feasible": (
        [Told([0.9], feasible=False)],
        {"constraints": {"size": "<= 5"}},
        "No trial reported a finite val_accuracy and satisfied the constraints",
    ),
    "interrupted": (
        [Told([0.5]), Told([0.4], None), Told([0.3], Outcome.INTERRUPTED)],
        {},
        "The sweep has not ended: it was interrupted, or was running when this was written.",
    ),
    "minimised": ([Told([3.0, 1.0]), Told([2.0])], LOSS, "Best loss: 1, by trial 0."),
    "only constants": (
        [Told([0.5])],
        {"space": {"width": 3}},
        "Not shown: the space holds nothing but constants.",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("told", "settings", "text"), ENDS.values(), ids=ENDS.keys())
def test_a_report_is_written_whatever_became_of_the_sweep(tmp_path, told, settings, text):
    page = page_of(sweep_on_disk(tmp_path, told, **settings), tmp_path)
    assert text in page
    assert "could not be drawn" not in page


def test_a_report_of_one_trial_tells_what_is_missing(tmp_path):
    settings = {"scheduler": {"name": "MedianStoppingRule", "max_t": 9}}
    page = page_of(sweep_on_disk(tmp_path, [Told([0.5])], **settings), tmp_path)
    assert "Best val_accuracy: 0.5, by trial 0." in page
    assert "Not shown: the scheduler MedianStoppingRule has no rungs." in page
    assert "Not shown: only 1 trial completed with a finite value" in page
    assert "could not be drawn" not in page


@pytest.mark.slow
def test_an_infeasible_trial_is_drawn_hollow(tmp_path):
    told = [Told([0.9], feasible=False), Told([0.5])]
    result = sweep_on_disk(tmp_path, told, constraints={"size": "<= 5"})
    page = page_of(result, tmp_path)
    assert '"name":"completed, not feasible"' in page
    assert '"symbol":"circle-open"' in page


@pytest.mark.slow
def test_a_sweep_with_two_objectives_shows_their_front(tmp_path):
    told = [
        Told([loss], metrics={"accuracy": accuracy})
        for loss, accuracy in [(0.1, 0.5), (0.2, 0.9), (0.3, 0.6)]
    ]
    result = sweep_on_disk(tmp_path, told, **TWO)
    files = write_report(result, tmp_path / "report")
    assert "plots/pareto_front.png" in files
    assert "rings mark the 2 trials of the front" in files["report.html"].read_text()


@pytest.mark.slow
def test_without_result_files_what_rests_on_them_is_missing(tmp_path):
    result = sweep_on_disk(tmp_path, [Told([0.5]), Told([0.6])])
    for file in result.path.glob("trial_*/result.json"):
        file.unlink()
    page = page_of(result, tmp_path)
    assert "Not shown: no trial&#39;s folder holds a report with a finite value." in page
    assert "Best val_accuracy: 0.6, by trial 1." in page


def test_text_of_a_user_is_shown_and_never_run(tmp_path):
    space = {EVIL_NAME: {"choice": [EVIL, "b", ["</script>", EVIL]]}, "x": {"uniform": [0, 1]}}
    told = [
        Told([0.1 * at], config={EVIL_NAME: option, "x": 0.1 * at}, cause=EVIL, host=EVIL)
        for at, option in enumerate(space[EVIL_NAME]["choice"])
    ]
    told += [Told([], Outcome.ERROR, config=told[0].config, cause=EVIL)] * 2
    result = sweep_on_disk(tmp_path, told, space=space)
    files = write_report(result, tmp_path / "report")
    pages = [file.read_text() for name, file in files.items() if name.endswith(".html")]
    assert len(pages) > 5
    for page in pages:
        assert "<script>alert" not in page
        assert "could not be drawn" not in page
    assert "&lt;script&gt;alert(1)" in pages[0]


def test_secrets_stand_in_no_file(tmp_path):
    secret, named = "hunter2-and-more", "several plain words"
    space = {"source": {"choice": [f"postgresql://me:{secret}@db/x", "b"]}}
    told = [
        Told([0.1], config={"source": space["source"]["choice"][0]}),
        Told([], Outcome.ERROR, config={"source": "b"}, cause=f"psql://me:{secret}@db: {named}"),
    ]
    data = {"path": "a.csv", "login": {"pwd": named}}
    result = sweep_on_disk(tmp_path, told, space=space, data=data)
    files = write_report(result, tmp_path / "report")
    assert "me:***@db" in files["report.html"].read_text()
    assert "me:***@db" in files["trials.csv"].read_text()
    for each in (secret, named):
        assert not [name for name, file in files.items() if each.encode() in file.read_bytes()]


@pytest.mark.slow
def test_a_fault_in_one_plot_costs_no_other(usual_sweep, tmp_path, monkeypatch):
    monkeypatch.setattr("tune_tf.report.plots.curves._best_so_far", lambda *_: 1 / 0)
    files = write_report(usual_sweep, tmp_path)
    assert "plots/history.png" not in files
    assert "plots/slices.png" in files
    assert "it could not be drawn: ZeroDivisionError" in files["report.html"].read_text()


@pytest.mark.slow
def test_a_population_may_leave_the_declared_ranges(tmp_path):
    told = [Told([0.1 * at], config={"x": 0.4 * at}) for at in range(5)]
    result = sweep_on_disk(
        tmp_path,
        told,
        space={"x": {"uniform": [0.0, 1.0]}},
        scheduler={"name": "pbt", "max_t": 9},
    )
    page = page_of(result, tmp_path)
    assert "could not" not in page
    assert "functional ANOVA over 5 completed trials" in page


def test_the_start_is_told(usual_report):
    assert START_S == 1_790_000_000
    assert "started 21 September 2026, 14:13 UTC" in usual_report["report.html"].read_text()
