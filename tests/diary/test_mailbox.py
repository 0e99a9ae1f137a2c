"""Letters to the driver of a sweep."""

from tune_tf.events import ControlChannel


def test_letters_are_taken_once_in_the_order_of_their_writing(tmp_path):
    for number in range(3):
        ControlChannel(tmp_path).post({"number": number})

    driver = ControlChannel(tmp_path)
    assert [letter["number"] for letter in driver.take()] == [0, 1, 2]
    assert list(driver.take()) == []


def test_a_letter_that_cannot_be_read_is_passed_over_and_taken_away(tmp_path):
    box = ControlChannel(tmp_path)
    box.post({"number": 1})
    for path in (tmp_path / "asked").iterdir():
        path.write_text("{")
    box.post({"number": 2})

    assert [letter["number"] for letter in box.take()] == [2]
    assert list((tmp_path / "asked").iterdir()) == []


def test_letters_for_an_earlier_driver_can_be_taken_away(tmp_path):
    box = ControlChannel(tmp_path)
    box.post({"number": 1})
    box.clear()
    assert list(box.take()) == []


def test_a_sweep_that_nobody_has_written_to_has_no_letters(tmp_path):
    assert list(ControlChannel(tmp_path).take()) == []
