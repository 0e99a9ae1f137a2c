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


def op_codes(path):
    return [json.loads(line)["op_code"] for line in lines_of(path)]


def index_of(path, op_code, nth):
    return [i for i, each in enumerate(op_codes(path)) if each == op_code][nth]


def damage(path, index, junk=b"\xff\x00 garbage \xfe\n"):
    lines = lines_of(path)
    lines[index] = junk
    path.write_bytes(b"".join(lines))


def test_a_journal_without_a_fault_is_left_as_it_is(path, caplog):
    before = path.read_bytes()
    trials_of(path)
    assert path.read_bytes() == before
    assert not caplog.records
    assert not path.with_name("study.journal.damaged").exists()


def test_a_last_line_that_was_cut_is_moved_aside_and_writing_goes_on(path, caplog):
    path.write_bytes(path.read_bytes()[:-20])
    with caplog.at_level(logging.WARNING):
        study = optuna.load_study(study_name="s", storage=open_storage(path))
    [record] = caplog.records
    assert "1 unreadable lines moved to" in record.getMessage()
    assert study.trials[-1].state.name == "RUNNING"
    study.tell(3, 3.0)
    assert [trial.value for trial in trials_of(path)] == [0.0, 1.0, 2.0, 3.0]


def test_a_last_line_that_only_lacks_its_end_is_kept(path):
    path.write_bytes(path.read_bytes()[:-1])
    assert [trial.value for trial in trials_of(path)] == [0.0, 1.0, 2.0, 3.0]


def test_junk_between_lines_loses_nothing(path):
    lines = lines_of(path)
    path.write_bytes(b"".join([*lines[:5], b"\x00\x01\n{]\n[]\n{}\n", *lines[5:]]))
    assert [trial.value for trial in trials_of(path)] == [0.0, 1.0, 2.0, 3.0]
    assert path.with_name("study.journal.damaged").read_bytes() == b"\x00\x01\n{]\n[]\n{}\n"


def test_a_lost_value_is_missing_from_its_own_trial_only(path):
    damage(path, index_of(path, 7, 1))
    curves = [trial.intermediate_values for trial in trials_of(path)]
    assert curves == [{1: 0.0}, {}, {1: 1.0}, {1: 1.5}]


@pytest.mark.parametrize(
    "junk", [b"garbage\n", b'{"op_code":4,"worker_id":"a","stu\n'], ids=["unknown", "half a line"]
)
@pytest.mark.parametrize("nth", range(NUM_TRIALS))
def test_a_lost_trial_start_does_not_shift_later_entries(path, nth, junk):
    damage(path, index_of(path, 4, nth), junk)
    trials = trials_of(path)
    assert [trial.user_attrs["number"] for trial in trials] == [0, 1, 2, 3]
    assert [trial.value for trial in trials] == [0.0, 1.0, 2.0, 3.0]


def test_what_is_lost_is_said_once_with_counts(path, caplog):
    num_lines = len(lines_of(path))
    damage(path, index_of(path, 4, 1))
    with caplog.at_level(logging.WARNING):
        trials_of(path)
        trials_of(path)
    [record] = caplog.records
    assert f"{num_lines - 1} entries are kept, 1 unreadable lines moved to" in record.getMessage()
    assert "1 trials lost their first entry" in record.getMessage()


@pytest.mark.parametrize("junk", [b"", b"garbage\n"], ids=["gone", "garbage"])
def test_a_journal_that_lost_its_study_is_refused_and_stays_as_it_is(path, junk):
    damage(path, 0, junk + b"more garbage\n")
    before = path.read_bytes()
    with pytest.raises(InvalidSettingsError, match="the entry that created its study is lost"):
        open_storage(path)
    assert path.read_bytes() == before


def test_a_file_of_junk_is_refused_and_stays_as_it_is(path):
    path.write_bytes(bytes(range(256)) * 40)
    with pytest.raises(InvalidSettingsError, match="no line is an entry"):
        open_storage(path)
    assert path.stat().st_size == 256 * 40


def test_no_lock_is_left(path):
    damage(path, 3)
    open_storage(path)
    assert {each.name for each in path.parent.iterdir()} == {
        "study.journal",
        "study.journal.damaged",
    }


@pytest.mark.parametrize("size", [1, 5, 60])
def test_a_journal_with_only_part_of_its_first_line_is_begun_anew(path, size, caplog):
    path.write_bytes(path.read_bytes()[:size])
    with quiet_logging():
        study = optuna.create_study(storage=open_storage(path), study_name="s")
    assert study.trials == []
    assert "is damaged" in caplog.text


def test_a_journal_of_one_empty_line_is_begun_anew(path):
    path.write_bytes(b"\n")
    with quiet_logging():
        study = optuna.create_study(storage=open_storage(path), study_name="s")
    assert study.trials == []


def test_a_torn_entry_of_who_opened_the_study_once_more_costs_nothing(path):
    path.write_bytes(path.read_bytes() + b'{"op_code":0,"worker_id":"a","study_na')
    assert [trial.value for trial in trials_of(path)] == [0.0, 1.0, 2.0, 3.0]
