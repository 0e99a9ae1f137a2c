"""Updates as they are put into a spool, and what a folder of it holds."""

from tune_tf.tracking.writing.run_update import Report, RunUpdate
from tune_tf.tracking.writing.spool import Spool


def result(run, step):
    return RunUpdate(run, 0, reports=[Report(step, 0, {"loss": 1.0})])


def lines(path):
    return b"".join(file.read_bytes() for file in sorted(path.glob("*.jsonl")))


def read(path, limit=100):
    spool = Spool(path)
    entries = spool.read(0, limit)
    spool.close()
    return [(number, entry.reports[0].step) for number, entry in entries]
