import threading
import time
from types import SimpleNamespace

import pytest

from tune_tf.tracking.writing.run_update import PARENT, Report, RunUpdate
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


def result(run, step):
    return RunUpdate(run, 0, reports=[Report(step, 0, {"loss": 1.0})])


def test_writer_groups_entries_by_run_and_writes_the_parent_last():
    sink = ScriptedSink()
    writer = writer_of(sink, linger_s=60.0)
    writer.put(RunUpdate(PARENT, 0))
    for step in range(3):
        writer.put(result("a", step))
        writer.put(result("b", step))
    writer.close()
    assert sink.written == [("a", [0, 1, 2]), ("b", [0, 1, 2]), (PARENT, [])]


def test_a_store_that_cannot_be_opened_at_first_is_opened_later():
    sink = ScriptedSink()
    answers = [OutageError("down"), sink]

    def open_sink():
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    writer = BackgroundWriter(open_sink, linger_s=0.0, delays_s=(0.0, 0.0))
    writer.put(result("t", 1))
    writer.close()
    assert sink.written == [("t", [1])]


@pytest.fixture
def clock(monkeypatch):
    """A clock for the writer, which goes on where a test lets it."""
    clock = SimpleNamespace(now=0.0)
    given = SimpleNamespace(monotonic=lambda: clock.now, thread_time=time.thread_time)
    monkeypatch.setattr("tune_tf.tracking.writing.writer.time", given)
    return clock


@pytest.mark.parametrize(
    "end", [BackgroundWriter.flush, BackgroundWriter.close], ids=["flush", "close"]
)
def test_patience_counts_from_what_was_taken_last(clock, end):
    class Slow(ScriptedSink):
        def write(self, entry):
            clock.now += 4.0
            self.written.append(entry.tags.popitem())
            if entry.tags:
                raise OutageError("one at a time")

    sink = Slow()
    writer = writer_of(sink, linger_s=60.0, patience_s=5.0)
    writer.put(RunUpdate("t", 0, tags={str(number): "" for number in range(9)}))
    assert end(writer) is not False
    assert len(sink.written) == 9
    writer.close()


@pytest.mark.parametrize(
    "end", [BackgroundWriter.flush, BackgroundWriter.close], ids=["flush", "close"]
)
def test_patience_counts_from_when_the_end_was_asked_for(clock, end):
    class Slow(ScriptedSink):
        def write(self, entry):
            clock.now += 1.0
            super().write(entry)

    sink = Slow()
    writer = writer_of(sink, linger_s=60.0, patience_s=5.0)
    writer.put(result("t", 1))
    assert writer.flush()
    clock.now += 1000.0
    sink.errors = [OutageError("down")] * 3
    writer.put(result("t", 2))
    assert end(writer) is not False
    assert sink.written == [("t", [1]), ("t", [2])]
    writer.close()


def test_an_outage_is_told_once_and_its_end_too(caplog):
    caplog.set_level("INFO")
    sink = ScriptedSink([OutageError("down")] * 50)
    writer = writer_of(sink, patience_s=60.0)
    for step in range(20):
        writer.put(result(f"t{step % 4}", step))
    assert writer.flush(240)
    writer.put(result("t0", 99))
    writer.close()
    assert [r.getMessage() for r in caplog.records] == [
        "MLflow is not available; training continues: down",
        "MLflow is available again; writing the backlog",
    ]


def test_a_trial_made_anew_is_not_merged_with_the_one_before():
    sink = ScriptedSink()
    writer = writer_of(sink, linger_s=60.0)
    writer.put(result("t", 7))
    anew = result("t", 1)
    anew.fresh = True
    writer.put(anew)
    writer.put(result("t", 2))
    writer.close()
    assert sink.written == [("t", [7]), ("t", [1, 2])]


def test_the_end_of_the_sweep_waits_until_its_trials_have_ended():
    sink = ScriptedSink([OutageError("down")])
    writer = writer_of(sink, linger_s=60.0, patience_s=60.0)
    writer.put(RunUpdate(PARENT, 0, trials=frozenset({"t"}), status="FINISHED"))
    writer.put(result("t", 1))
    writer.close()
    assert [run for run, _ in sink.written] == ["t", PARENT]


class SinkWithoutOne(ScriptedSink):
    """Never takes anything of one run."""

    def write(self, entry):
        if entry.run == "bad":
            raise OutageError("no such place")
        super().write(entry)


def test_closing_does_not_wait_for_artifacts_that_a_store_refuses():
    sink = SinkWithoutOne()
    writer = writer_of(sink, linger_s=60.0)
    writer.put(RunUpdate("bad", 0, texts={"a.txt": "x"}))
    writer.put(RunUpdate(PARENT, 0, trials=frozenset({"bad"}), status="FINISHED"))
    writer.close()
    assert [run for run, _ in sink.written] == [PARENT]


def test_a_store_that_is_down_is_not_asked_for_every_run():
    sink = ScriptedSink([OutageError("down")] * 1000)
    writer = writer_of(sink, linger_s=60.0)
    for number in range(50):
        writer.put(result(f"t{number}", 1))
    writer.close()
    assert 1000 - len(sink.errors) == 3  # of the one round that there is without patience
    assert writer.lost == 50


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


def test_writer_returns_copies_of_unwritten_entries():
    sink = GatedSink()
    writer = writer_of(sink)
    writer.put(result("a", 1))
    assert sink.entered.wait(240)  # on its way, but who knows
    writer.put(result("b", 1))
    writer.put(result("a", 2))

    left = writer.unwritten()

    assert [(entry.run, entry.reports[0].step) for entry in left] == [("a", 1), ("b", 1), ("a", 2)]
    sink.gate.set()
    writer.close()
    assert writer.unwritten() == []
    assert len(left[0].reports) == 1  # copies: the sink takes out of its own what it has written
