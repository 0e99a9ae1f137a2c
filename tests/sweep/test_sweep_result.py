"""Whether a resume has anything to do, as the sweep's folder tells."""

import pytest

from tune_tf.record import Record
from tune_tf.sweep.sweep_result import finished_result
from tune_tf.sweep_folder import SweepFolder


@pytest.fixture
def settled(ended):
    """A sweep that has come to its end, with its report."""
    path = ended.path / "report" / "report.html"
    path.parent.mkdir()
    path.write_text("<html></html>")
    return ended


def found(sweep):
    return finished_result(SweepFolder.open(sweep.path))


def interrupt(sweep):
    sweep.drive()
    sweep.finish(interrupted=True)


def fail_to_log(sweep):
    with Record(sweep.path) as diary:
        diary.begin_session()
        diary.record_session_end(interrupted=False, run_ids={}, missing_outputs=["best model"])


def lose_the_report(sweep):
    (sweep.path / "report" / "report.html").unlink()


def edit(sweep):
    path = sweep.path / "sweep.yaml"
    path.write_text(path.read_text().replace("num_samples: 8", "num_samples: 9"))


@pytest.mark.parametrize(
    "what",
    [
        interrupt,
        fail_to_log,
        lose_the_report,
        edit,
    ],
)
def test_a_resume_has_work_to_do_after(settled, what):
    what(settled)
    assert found(settled) is None
