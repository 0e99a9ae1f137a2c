"""Repair of damaged journals."""

import json
import logging

import optuna
import pytest

from tune_tf.errors import InvalidSettingsError
from tune_tf.searchers.storage.study_storage import open_storage, quiet_logging

NUM_TRIALS = 4


@pytest.fixture
def path(tmp_path):
    """A journal of four trials, each with one parameter, a curve and an end."""
    path = tmp_path / "study.journal"
    with quiet_logging():
        study = optuna.create_study(storage=open_storage(path), study_name="s")
    for number in range(NUM_TRIALS):
        trial = study.ask()
        trial.suggest_float("x", 0, 1)
        trial.set_user_attr("number", number)
        trial.report(number / 2, 1)
        study.tell(trial, float(number))
    return path


def trials_of(path):
    return optuna.load_study(study_name="s", storage=open_storage(path)).trials


def lines_of(path):
    return path.read_bytes().splitlines(keepends=True)


def test_a_last_line_that_was_cut_is_moved_aside_and_writing_goes_on(path, caplog):
    path.write_bytes(path.read_bytes()[:-20])
    with caplog.at_level(logging.WARNING):
        study = optuna.load_study(study_name="s", storage=open_storage(path))
    [record] = caplog.records
    assert "1 unreadable lines moved to" in record.getMessage()
    assert study.trials[-1].state.name == "RUNNING"
    study.tell(3, 3.0)
    assert [trial.value for trial in trials_of(path)] == [0.0, 1.0, 2.0, 3.0]


NEW_STUDY, NEW_TRIAL, REPORT = 0, 4, 7
STARTED = f'{{"op_code":{NEW_STUDY},"worker_id":"a","study_na'.encode()


def replaced(op_code, nth, junk=b"\xff\x00 garbage \xfe\n"):
    """Return a fault: junk in the place of an entry."""

    def fault(lines):
        codes = [json.loads(line)["op_code"] for line in lines]
        lines[[i for i, each in enumerate(codes) if each == op_code][nth]] = junk

    return fault


FAULTS = {
    "no line's end": lambda lines: lines.append(lines.pop()[:-1]),
    "junk between lines": lambda lines: lines.insert(5, b"\x00\x01\n{]\n[]\n{}\n"),
    "torn start of a study": lambda lines: lines.append(STARTED),
    **{f"start of trial {nth}": replaced(NEW_TRIAL, nth) for nth in range(NUM_TRIALS)},
    "half a start": replaced(NEW_TRIAL, 1, b'{"op_code":4,"worker_id":"a","stu\n'),
}


def write(path, fault):
    lines = lines_of(path)
    fault(lines)
    path.write_bytes(b"".join(lines))


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_fault_costs_no_trial_its_number_or_value(path, fault):
    write(path, fault)
    trials = trials_of(path)
    assert [trial.user_attrs["number"] for trial in trials] == [0, 1, 2, 3]
    assert [trial.value for trial in trials] == [0.0, 1.0, 2.0, 3.0]
    names = {each.name for each in path.parent.iterdir()}
    assert names <= {"study.journal", "study.journal.damaged"}  # no lock is left


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (replaced(NEW_STUDY, 0), "the entry that created its study is lost"),
        (lambda lines: lines.__setitem__(slice(None), [bytes(range(256))] * 9), "no line is an"),
    ],
    ids=["damaged study", "junk"],
)
def test_a_file_without_a_study_is_refused_and_stays_as_it_is(path, fault, message):
    write(path, fault)
    before = path.read_bytes()
    with pytest.raises(InvalidSettingsError, match=message):
        open_storage(path)
    assert path.read_bytes() == before
