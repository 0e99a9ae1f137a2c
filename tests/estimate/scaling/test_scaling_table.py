"""The numbers as texts."""

from measured_candidates import batch, failed, measured, replicas

from tune_tf.estimate.scaling.scale import how_measured
from tune_tf.estimate.scaling.scaling_report import HEADERS, table_of


def test_each_group_has_a_title_and_each_line_a_text_a_column():
    groups = dict(table_of([measured(), replicas(2, 1.5, shaken=0.1), batch(4, 2.0)]))
    assert list(groups) == ["more devices", "other batch sizes"]
    one, two = groups["more devices"]
    assert one.is_reference
    assert dict(zip(HEADERS, two.cells, strict=True)) == {
        "": "2 replicas",
        "devices": "2",
        "batch": "32",
        "rows": "1,000",
        "rows/s": "1,530",
        "speed-up": "1.53 ±0.15",
        "efficiency": "76%",
        "cores busy": "0.9",
        "memory": "0.9 GB",
        "input": "4%",
        "start": "7 s",
    }
    (large,) = groups["other batch sizes"]
    assert large.cells[HEADERS.index("efficiency")] == ""


def test_what_could_not_be_measured_says_why():
    ((_, rows),) = table_of([measured(), failed(2, "no room")])
    assert rows[1].error == "no room"
    assert len(rows[1].cells) == len(HEADERS)


def test_it_is_told_when_not_all_rows_were_used():
    assert "the first 1,000 of 60,000 rows" in how_measured(3, used=1000, total=60_000)[0]
    assert "the first" not in how_measured(3, used=1000, total=1000)[0]
