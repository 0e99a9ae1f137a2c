import threading
import time
from types import SimpleNamespace

import pytest

from tune_tf.tracking.writing.run_update import Report, RunUpdate
from tune_tf.tracking.writing.writer import BackgroundWriter


class OutageError(RuntimeError):
    """A store that is down."""


class ScriptedSink:
    """Fails as told, then keeps what it is given."""

    num_refused = 0

    def __init__(self, errors=()):
        self.errors = list(errors)
        self.written = []

    def write(self, entry):
        if self.errors:
            raise self.errors.pop(0)
        self.written.append((entry.run, [report.step for report in entry.reports]))
        entry.reports.clear()


class GatedSink(ScriptedSink):
    """Writes only once the gate is open."""

    def __init__(self):
        super().__init__()
        self.gate = threading.Event()
        self.entered = threading.Event()

    def write(self, entry):
        self.entered.set()
        assert self.gate.wait(240)
        super().write(entry)


def writer_of(sink, **settings):
    settings = {"linger_s": 0.0, "delays_s": (0.0,), "patience_s": 0.0, **settings}
    return BackgroundWriter(lambda: sink, **settings)


def wait_until(condition):
    end = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def result(run, step):
    return RunUpdate(run, 0, reports=[Report(step, 0, {"loss": 1.0})])


@pytest.fixture
def clock(monkeypatch):
    """A clock for the writer, which goes on where a test lets it."""
    clock = SimpleNamespace(now=0.0)
    given = SimpleNamespace(monotonic=lambda: clock.now, thread_time=time.thread_time)
    monkeypatch.setattr("tune_tf.tracking.writing.writer.time", given)
    return clock


def test_patience_counts_from_what_was_taken_last(clock):
    class Slow(ScriptedSink):
        def write(self, entry):
            clock.now += 4.0
            self.written.append(entry.tags.popitem())
            if entry.tags:
                raise OutageError("one at a time")

    sink = Slow()
    writer = writer_of(sink, linger_s=60.0, patience_s=5.0)
    writer.put(RunUpdate("t", 0, tags={str(number): "" for number in range(9)}))
    writer.close()
    assert len(sink.written) == 9


def test_patience_counts_from_when_the_end_was_asked_for(clock):
    class Slow(ScriptedSink):
        def write(self, entry):
            clock.now += 1.0
            super().write(entry)

    sink = Slow()
    writer = writer_of(sink, patience_s=5.0)
    writer.put(result("t", 1))
    wait_until(lambda: not writer.num_left)
    clock.now += 1000.0
    sink.errors = [OutageError("down")] * 3
    writer.put(result("t", 2))
    writer.close()
    assert sink.written == [("t", [1]), ("t", [2])]


def test_an_outage_is_told_once_and_its_end_too(caplog):
    caplog.set_level("INFO")
    sink = ScriptedSink([OutageError("down")] * 50)
    writer = writer_of(sink, patience_s=60.0)
    for step in range(20):
        writer.put(result(f"t{step % 4}", step))
    wait_until(lambda: not writer.num_left)
    writer.put(result("t0", 99))
    writer.close()
    assert [r.getMessage() for r in caplog.records] == [
        "MLflow is not available; training continues: down",
        "MLflow is available again; writing the backlog",
    ]


def test_a_slow_store_holds_the_caller_back_and_drops_nothing():
    sink = GatedSink()
    writer = writer_of(sink, capacity=1, backlog=1)
    writer.put(result("t", 0))
    assert sink.entered.wait(240)
    writer.put(result("t", 1))
    blocked = threading.Thread(target=writer.put, args=(result("t", 2),))
    blocked.start()
    blocked.join(0.05)
    assert blocked.is_alive()
    sink.gate.set()
    blocked.join(240)
    writer.close()
    assert [step for _, steps in sink.written for step in steps] == [0, 1, 2]


def test_a_store_that_hangs_is_left_after_the_timeout(caplog):
    sink = GatedSink()
    writer = writer_of(sink)
    writer.put(result("t", 1))
    writer.close(timeout_s=0.05)
    sink.gate.set()
    assert "the sweep's runs may be incomplete" in caplog.text
