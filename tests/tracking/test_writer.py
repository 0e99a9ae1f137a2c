import threading

import pytest

from tune_tf.tracking.entry import PARENT, Entry, Report
from tune_tf.tracking.writer import Writer


class OutageError(RuntimeError):
    """A store that is down."""


class RefusalError(ValueError):
    """What a store will never take."""


class ScriptedSink:
    """Fails as told, then keeps what it is given."""

    def __init__(self, errors=()):
        self.errors = list(errors)
        self.written = []

    def write(self, entry):
        if self.errors:
            raise self.errors.pop(0)
        self.written.append((entry.run, [report.step for report in entry.reports]))
        entry.reports.clear()

    def is_permanent(self, error):
        return isinstance(error, RefusalError)


class GatedSink(ScriptedSink):
    """Writes only once the gate is open."""

    def __init__(self):
        super().__init__()
        self.gate = threading.Event()
        self.entered = threading.Event()

    def write(self, entry):
        self.entered.set()
        assert self.gate.wait(10)
        super().write(entry)


def writer_of(sink, **settings):
    return Writer(lambda: sink, **{"linger_s": 0.0, "delays_s": (0.0, 0.0), **settings})


def result(run, step):
    return Entry(run, 0, reports=[Report(step, 0, {"loss": 1.0})])


def test_all_is_written_in_order_when_closed():
    sink = ScriptedSink()
    writer = writer_of(sink)
    for step in range(50):
        writer.put(result("t", step))
    writer.close()
    assert [step for _, steps in sink.written for step in steps] == list(range(50))
    assert writer.lost == 0


def test_what_comes_within_the_linger_is_written_together_and_the_parent_last():
    sink = ScriptedSink()
    writer = writer_of(sink, linger_s=60.0)
    writer.put(Entry(PARENT, 0))
    for step in range(3):
        writer.put(result("a", step))
        writer.put(result("b", step))
    writer.close()
    assert sink.written == [("a", [0, 1, 2]), ("b", [0, 1, 2]), (PARENT, [])]


def test_flush_does_not_wait_for_the_linger():
    sink = ScriptedSink()
    writer = writer_of(sink, linger_s=60.0)
    writer.put(result("t", 1))
    assert writer.flush(10)
    assert sink.written == [("t", [1])]
    writer.close()


def test_a_store_that_fails_for_a_while_loses_and_doubles_nothing():
    sink = ScriptedSink([OutageError("down"), OutageError("down")])
    writer = writer_of(sink)
    writer.put(result("t", 1))
    writer.close()
    assert sink.written == [("t", [1])]
    assert writer.lost == 0


def test_a_store_that_cannot_be_opened_at_first_is_opened_later():
    sink = ScriptedSink()
    answers = [OutageError("down"), sink]

    def open_sink():
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    writer = Writer(open_sink, linger_s=0.0, delays_s=(0.0, 0.0))
    writer.put(result("t", 1))
    writer.close()
    assert sink.written == [("t", [1])]


def test_what_a_store_refuses_is_given_up_at_once_and_the_rest_goes_on():
    sink = ScriptedSink([RefusalError("bad")])
    writer = writer_of(sink, linger_s=60.0)
    writer.put(result("bad", 1))
    writer.put(result("good", 1))
    writer.close()
    assert sink.written == [("good", [1])]
    assert writer.lost == 1


def test_a_store_that_stays_down_is_told_once_at_first_and_once_at_the_end(caplog):
    sink = ScriptedSink([OutageError("down")] * 100)
    writer = writer_of(sink, linger_s=60.0)
    for step in range(4):
        writer.put(result(f"t{step}", step))
    writer.close()
    writer.close()
    first, last = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert first == "MLflow cannot be written to; training goes on: down"
    assert last.startswith("4 values could not be written to MLflow")


def test_a_store_that_is_down_is_not_asked_for_every_run():
    sink = ScriptedSink([OutageError("down")] * 1000)
    writer = writer_of(sink, linger_s=60.0)
    for number in range(50):
        writer.put(result(f"t{number}", 1))
    writer.close()
    assert 1000 - len(sink.errors) == 3 * 3  # three rounds: the first try and two more
    assert writer.lost == 50


def test_a_slow_store_holds_the_caller_back_and_drops_nothing():
    sink = GatedSink()
    writer = writer_of(sink, capacity=1, backlog=1)
    writer.put(result("t", 0))
    assert sink.entered.wait(10)
    writer.put(result("t", 1))
    blocked = threading.Thread(target=writer.put, args=(result("t", 2),))
    blocked.start()
    blocked.join(0.05)
    assert blocked.is_alive()
    sink.gate.set()
    blocked.join(10)
    writer.close()
    assert [step for _, steps in sink.written for step in steps] == [0, 1, 2]


def test_a_store_that_hangs_is_left_after_the_timeout(caplog):
    sink = GatedSink()
    writer = writer_of(sink)
    writer.put(result("t", 1))
    writer.close(timeout_s=0.05)
    sink.gate.set()
    assert "its runs may be incomplete" in caplog.text


@pytest.mark.parametrize("calls", [1, 2], ids=["once", "twice"])
def test_closing_and_flushing_a_closed_writer_returns(calls):
    writer = writer_of(ScriptedSink())
    for _ in range(calls):
        writer.close()
    assert writer.flush(1)


def test_what_is_put_after_closing_is_counted_as_lost():
    writer = writer_of(ScriptedSink())
    writer.close()
    writer.put(result("t", 1))
    assert writer.lost == 1


def test_what_is_not_written_yet_can_be_taken_along():
    sink = GatedSink()
    writer = writer_of(sink)
    writer.put(result("a", 1))
    assert sink.entered.wait(10)  # on its way, but who knows
    writer.put(result("b", 1))
    writer.put(result("a", 2))

    left = writer.unwritten()

    assert [(entry.run, entry.reports[0].step) for entry in left] == [("a", 1), ("b", 1), ("a", 2)]
    sink.gate.set()
    writer.close()
    assert writer.unwritten() == []
    assert len(left[0].reports) == 1  # copies: the sink takes out of its own what it has written
