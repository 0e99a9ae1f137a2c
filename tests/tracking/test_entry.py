import pytest

from tune_tf.tracking.entry import Entry, Report, batches


def report(step, num_metrics=2):
    return Report(step, 1000 * step, {f"m{i}": float(i) for i in range(num_metrics)})


def test_what_comes_later_is_added_and_the_last_tag_counts():
    entry = Entry("t", 1, name="n", tags={"a": "1", "b": "1"}, reports=[report(1)])
    entry.merge(Entry("t", 2, tags={"b": "2"}, reports=[report(2)], status="KILLED", end_ms=2))
    assert entry == Entry(
        "t",
        1,
        name="n",
        tags={"a": "1", "b": "2"},
        reports=[report(1), report(2)],
        status="KILLED",
        end_ms=2,
    )


def test_reopening_takes_back_an_end_not_yet_written():
    entry = Entry("t", 1, status="KILLED", end_ms=1)
    entry.merge(Entry("t", 2, reopen=True))
    assert (entry.status, entry.end_ms, entry.reopen) == (None, None, True)


def test_size_counts_every_value():
    entry = Entry("t", 1, params={"a": "1"}, tags={"b": "2"}, reports=[report(1)], status="KILLED")
    assert entry.size == 5


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [([], []), ([2, 2], [[2, 2]]), ([2, 2, 2], [[2, 2], [2]]), ([3, 2], [[3], [2]])],
)
def test_reports_are_grouped_whole_within_the_limit(sizes, groups):
    reports = [report(step, size) for step, size in enumerate(sizes)]
    got = [[len(part.metrics) for part in group] for group in batches(reports, 4)]
    assert got == groups


def test_a_report_over_the_limit_is_split_and_its_rest_is_always_needed():
    parts = [part for group in batches([report(1, 5)], 2) for part in group]
    assert [len(part.metrics) for part in parts] == [2, 2, 1]
    assert [part.once for part in parts] == [True, False, False]
