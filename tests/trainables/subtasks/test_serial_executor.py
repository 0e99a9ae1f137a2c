"""Acts that several threads ask for, one after the other."""

import threading

import pytest

from tune_tf.trainables.subtasks.serial_executor import SerialExecutor


@pytest.fixture
def thread():
    """A thread that counts what it did afterwards."""
    counts = []
    made = SerialExecutor(lambda: counts.append(1), "test")
    made.counts = counts
    yield made
    made.end()


def test_an_act_is_done_in_the_thread_and_something_after_it(thread):
    name = thread.do(lambda: threading.current_thread().name)

    assert name.startswith("test")
    assert len(thread.counts) == 1


def test_who_waits_goes_on_once_an_act_has_made_it_so(thread):
    done = []
    thread.wait(lambda: len(done) > 2, lambda: done.append(1), every_s=0.001)

    assert len(done) == 3


def test_an_act_that_raises_ends_the_waiting_with_its_error(thread):
    def fails():
        raise ValueError("of this act")

    with pytest.raises(ValueError, match="of this act"):
        thread.wait(lambda: False, fails, every_s=0.001)


def test_the_first_error_counts(thread):
    thread.fail(ValueError("first"))
    thread.fail(ValueError("second"))

    with pytest.raises(ValueError, match="first"):
        thread.wait(lambda: False, lambda: None, every_s=0.001)


def test_what_comes_after_the_end_is_not_heard():
    thread, heard = SerialExecutor(lambda: None, "test"), []
    thread.end()
    thread.submit(heard.append, 1)

    assert heard == []
