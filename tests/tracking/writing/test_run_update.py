import math

import pytest

from tune_tf.tracking.writing.run_update import Report, RunUpdate

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


def test_reopening_takes_back_an_end_not_yet_written():
    entry = RunUpdate("t", 1, status="KILLED", end_ms=1)
    entry.merge(RunUpdate("t", 2, reopen=True))
    assert (entry.status, entry.end_ms, entry.reopen) == (None, None, True)


def test_a_sweep_that_goes_on_is_not_settled_by_its_earlier_end():
    entry = RunUpdate("", 0, trials=frozenset({"t"}), ends={"t": "error"}, status="KILLED")
    entry.merge(RunUpdate("", 1, reopen=True))
    assert (entry.trials, entry.ends) == (None, {})
