"""What is read of a trial's result.json."""

import json
import math

import numpy as np
import pytest

from tune_tf.report.report_data import read_curve


def line(iteration, value, **more):
    report = {
        "training_iteration": iteration,
        "loss": value,
        "timestamp": 1000 + 2 * iteration,
        "time_since_restore": 2.0 * iteration,
        "time_total_s": 2.0 * iteration,
        "pid": 7,
        "hostname": "n",
    }
    return json.dumps(report | more)


@pytest.fixture
def read(tmp_path):
    """Write lines to a file and read them as a curve."""

    def read_lines(*lines, metric="loss"):
        path = tmp_path / "result.json"
        path.write_text("\n".join(lines))
        return read_curve(path, metric)

    return read_lines


def test_a_curve_holds_each_report(read):
    curve = read(line(1, 0.5), line(2, 0.25))
    assert list(curve.iterations) == [1, 2]
    assert list(curve.values) == [0.5, 0.25]
    assert curve.trained_s == 4.0
    assert curve.end_s == 1004


def test_of_an_iteration_done_again_the_last_report_counts(read):
    assert list(read(line(1, 0.5), line(2, 0.4), line(2, 0.3)).values) == [0.5, 0.3]


def test_a_torn_line_is_passed_over(read):
    curve = read(line(1, 0.5), line(2, 0.4)[:30])
    assert list(curve.iterations) == [1]


def test_bytes_that_are_no_text_are_passed_over(tmp_path):
    path = tmp_path / "result.json"
    path.write_bytes(line(1, 0.5).encode() + b"\n\xff\x00\xfe\n" + line(2, 0.4).encode())
    assert list(read_curve(path, "loss").values) == [0.5, 0.4]


def test_a_missing_file_is_an_empty_curve(tmp_path):
    curve = read_curve(tmp_path / "none", "loss")
    assert len(curve.iterations) == 0
    assert math.isnan(curve.end_s)


@pytest.mark.parametrize("value", [math.nan, math.inf, None, "text", True])
def test_what_is_no_finite_number_is_a_gap(read, value):
    np.testing.assert_array_equal(read(line(1, value), line(2, 1.0)).values, [np.nan, 1.0])


def test_a_nested_metric_is_found_by_its_path(read):
    curve = read(line(1, 0.0, val={"loss": 0.75}), metric="val/loss")
    assert list(curve.values) == [0.75]


def test_a_trial_in_one_process_has_one_segment(read):
    (segment,) = read(line(1, 0.5), line(2, 0.4)).segments
    assert (segment.start_s, segment.end_s, segment.host) == (1000, 1004, "n")


@pytest.mark.parametrize(
    "more",
    [{"pid": 8, "time_since_restore": 2.0}, {"time_since_restore": 2.0}],
    ids=["in another process", "after a pause"],
)
def test_a_trial_that_was_restored_has_two_segments(read, more):
    first, second = read(line(1, 0.5), line(2, 0.4), line(3, 0.3, timestamp=1050, **more)).segments
    assert (first.end_s, second.start_s, second.end_s) == (1004, 1048, 1050)
