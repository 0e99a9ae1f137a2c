"""Requests to the driver of a sweep."""

from tune_tf.events import ControlChannel


def test_requests_are_taken_once_in_the_order_of_their_writing(tmp_path):
    for number in range(3):
        ControlChannel(tmp_path).post({"number": number})

    driver = ControlChannel(tmp_path)
    assert [request["number"] for request in driver.take()] == [0, 1, 2]
    assert list(driver.take()) == []


def test_a_request_that_cannot_be_read_is_passed_over_and_taken_away(tmp_path):
    channel = ControlChannel(tmp_path)
    channel.post({"number": 1})
    for path in (tmp_path / "requests").iterdir():
        path.write_text("{")
    channel.post({"number": 2})

    assert [request["number"] for request in channel.take()] == [2]
    assert list((tmp_path / "requests").iterdir()) == []


def test_requests_for_an_earlier_driver_can_be_taken_away(tmp_path):
    channel = ControlChannel(tmp_path)
    channel.post({"number": 1})
    channel.clear()
    assert list(channel.take()) == []


def test_a_sweep_that_nobody_has_written_to_has_no_requests(tmp_path):
    assert list(ControlChannel(tmp_path).take()) == []
