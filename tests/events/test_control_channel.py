"""Requests to the driver of a sweep."""

from tune_tf.events import ControlChannel


def test_a_request_that_cannot_be_read_is_passed_over_and_taken_away(tmp_path):
    channel = ControlChannel(tmp_path)
    channel.post({"number": 1})
    for path in (tmp_path / "requests").iterdir():
        path.write_text("{")
    channel.post({"number": 2})

    assert [request["number"] for request in channel.take()] == [2]
    assert list((tmp_path / "requests").iterdir()) == []
