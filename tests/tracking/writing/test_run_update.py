import math

import pytest

from tune_tf.tracking.writing.run_update import Report, RunUpdate


def report(step, num_metrics=2):
    return Report(step, 1000 * step, {f"m{i}": float(i) for i in range(num_metrics)})


def test_what_comes_later_is_added_and_the_last_tag_counts():
    entry = RunUpdate("t", 1, name="n", tags={"a": "1", "b": "1"}, reports=[report(1)])
    entry.merge(RunUpdate("t", 2, tags={"b": "2"}, reports=[report(2)], status="KILLED", end_ms=2))
    assert entry == RunUpdate(
        "t",
        1,
        name="n",
        tags={"a": "1", "b": "2"},
        reports=[report(1), report(2)],
        status="KILLED",
        end_ms=2,
    )


def test_reopening_takes_back_an_end_not_yet_written():
    entry = RunUpdate("t", 1, status="KILLED", end_ms=1)
    entry.merge(RunUpdate("t", 2, reopen=True))
    assert (entry.status, entry.end_ms, entry.reopen) == (None, None, True)


FULL = RunUpdate(
    "trial/ü",
    1,
    name="n",
    params={"a": "1"},
    tags={"b": 'quoted "text"\nof two lines'},
    reports=[
        Report(1, 5, {"loss": 0.1 + 0.2, "inf": math.inf, "-inf": -math.inf}),
        Report(2, 6, {"tiny": 5e-324}, once=False),
    ],
    texts={"a/b.txt": "\u2028 text"},
    files={"plots/p.html": "/somewhere/else.html"},
    reopen=True,
    status="KILLED",
    end_ms=0,
    fresh=True,
    trials=frozenset({"t1", "t2"}),
    ends={"t2": "out_of_budget"},
)


@pytest.mark.parametrize(
    "entry",
    [FULL, RunUpdate("", 0), RunUpdate("", 0, trials=frozenset())],
    ids=["full", "empty", "none"],
)
def test_an_entry_comes_back_from_json_as_it_was(entry):
    assert RunUpdate.from_json(entry.to_json()) == entry
    assert "\n" not in entry.to_json()


@pytest.mark.parametrize("length", [0, 1, 20, -1])
def test_a_part_of_an_entry_is_refused(length):
    with pytest.raises(ValueError, match="not an entry"):
        RunUpdate.from_json(FULL.to_json()[:length])


@pytest.mark.parametrize(
    ("first", "later", "kept"),
    [
        ({"texts": {"a": "x"}}, {"files": {"a": "/f"}}, ({}, {"a": "/f"})),
        ({"files": {"a": "/f"}}, {"texts": {"a": "x"}}, ({"a": "x"}, {})),
    ],
    ids=["file over text", "text over file"],
)
def test_of_two_artifacts_of_one_path_the_later_counts(first, later, kept):
    entry = RunUpdate("t", 0, **first)
    entry.merge(RunUpdate("t", 1, **later))
    assert (entry.texts, entry.files) == kept


def test_a_sweep_that_goes_on_is_not_settled_by_its_earlier_end():
    entry = RunUpdate("", 0, trials=frozenset({"t"}), ends={"t": "error"}, status="KILLED")
    entry.merge(RunUpdate("", 1, reopen=True))
    assert (entry.trials, entry.ends) == (None, {})
