"""Each file of a sweep's folder, damaged in each way, under each verb that looks at it."""

import contextlib
import itertools
import re
import shutil
import sqlite3
import sys

import pytest
import ray
from guards import guarded
from sweep_in_progress import IDS, SweepInProgress

from tune_tf.atomic_files import warn_of_damage
from tune_tf.cli import main
from tune_tf.outcome import Outcome
from tune_tf.report import plots

VERBS = {
    "status": ["status", "{}"],
    "list": ["status", "--storage-path", "{}/.."],
    "show": ["show", "{}", "1"],
    "trials": ["trials", "{}", "--csv", "--top", "9"],
    "report": ["report", "{}"],
    "resume": ["resume", "{}"],
}
WRONG = ("x", "[1]", '{"a": 1}', -1, 1e400, "9" * 400, b"\xff", "[" * 100_000)
TORN = {
    "cut": lambda whole: whole[: len(whole) // 2],
    "empty": lambda whole: b"",
    "binary": lambda whole: bytes(range(256)) * 9,
    "ends in null bytes": lambda whole: whole + bytes(9),
    "text": lambda whole: b'"x"\n',
    "mapping": lambda whole: b'{"a": 1}\n',
    "deep": lambda whole: b"[" * 100_000,
    "digits": lambda whole: b"9" * 10_000,
}
FILES = (
    "sweep.yaml",
    "sweep-info",
    "sweep.db",
    "trial_00001/error.txt",
    "trial_00001/checkpoint_000002/trial.npz",
)


GUARDS = ("sweep-info", "sweep.db")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of an interrupted sweep with all that may be in it."""
    root = tmp_path_factory.mktemp("damaged")
    sweep = SweepInProgress(
        root / "sweeps", workload="tune_tf.workloads.digits:DigitsMLP", mlflow=None
    )
    for number in (0, 1):
        sweep.start(number)
        sweep.report(number, 0.1, 0.2, 0.3, **({"stop_cause": "tired"} if number else {}))
        sweep.checkpoint(number, 2)
        (sweep.path / f"trial_{number:05d}" / "error.txt").write_text("ValueError: no\n")
    sweep.end(0, Outcome.ERROR, cause="ValueError: no")
    sweep.diary.record_parent_run("f" * 32)
    config = sweep.config_of(2)
    sweep.diary.record_creation(IDS[2], 2, config, name="trial_00002", tag="3")
    sweep.diary.record_test(IDS[0], {"test_loss": 0.5})
    sweep.diary.record_suspension("the disk is full")
    sweep.finish(interrupted=True, run_ids={IDS[0]: "e" * 32})
    return sweep.path


@pytest.fixture
def outcome_of(folder, monkeypatch, capfd):
    """Call a verb where no cluster may start and no code is loaded; return all that it printed."""

    class ClusterStartsError(Exception):
        pass

    def start(*arguments, **options):
        raise ClusterStartsError

    monkeypatch.setattr(ray, "init", start)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)  # an earlier test's cluster
    monkeypatch.setattr(plots, "PLOTS", {})
    monkeypatch.setattr("tune_tf.sweep.run.check_settings", lambda *arguments: None)
    monkeypatch.setattr("tune_tf.sweep.run.make_searcher", lambda *arguments: None)
    monkeypatch.setenv("COLUMNS", "200")

    def call(name):
        warn_of_damage.cache_clear()
        arguments = [each.format(folder) for each in VERBS[name]]
        monkeypatch.setattr(sys, "argv", ["tune-tf", *arguments])
        with pytest.raises((SystemExit, ClusterStartsError)) as ended:
            main()
        text = "".join(capfd.readouterr())
        assert "Traceback" not in text, text
        return ended.value, text

    return call


@pytest.fixture
def damaged(folder, tmp_path):
    """Give a file other content; the folder is whole after the test, and after a resume."""
    kept = tmp_path / "kept"
    shutil.copytree(folder, kept)

    def restore():
        shutil.rmtree(folder)
        shutil.copytree(kept, folder)

    def damage(path, content, *, after=None):
        if after == "resume":
            restore()
        path.write_bytes(content)

    yield damage
    restore()


@pytest.mark.parametrize("name", guarded(FILES, GUARDS))
def test_no_verb_fails_over_a_damaged_file(name, folder, damaged, outcome_of):
    (path, *_) = folder.glob(name)
    whole = path.read_bytes()
    before = None
    for (how, tear), verb in itertools.product(TORN.items(), VERBS):
        damaged(path, tear(whole), after=before)
        before = verb
        try:
            outcome_of(verb)
        except BaseException as error:
            raise AssertionError(f"{verb} of {name}: {how}") from error


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("session", "last_s"),
        ("session", "fingerprint"),
        ("session", "missing_outputs"),
        ("trial", "config"),
        ("trial", "outcome"),
        ("trial", "test_metrics"),
        ("trial", "note"),
        ("trial", "resources"),
        ("pickle", "content"),
        ("result", "metrics"),
        ("fact", "value"),
    ],
)
def test_no_verb_fails_over_a_value_of_the_wrong_kind(table, column, folder, damaged, outcome_of):
    damaged(folder / "sweep.db", (folder / "sweep.db").read_bytes())
    for value, verb in itertools.product(WRONG, ("status", "show", "resume")):
        with contextlib.closing(sqlite3.connect(folder / "sweep.db")) as database, database:
            database.execute(f"UPDATE {table} SET {column} = ?", (value,))
        try:
            outcome_of(verb)
        except BaseException as error:
            raise AssertionError(f"{verb}: {table}.{column} = {value!r:.9}") from error


@pytest.mark.parametrize(
    ("name", "how", "told"),
    [
        ("sweep.db", "binary", "sweep.db, the record of the sweep, cannot be read: file is not a"),
    ],
)
def test_status_names_the_file_that_is_damaged(
    name, how, told, folder, damaged, outcome_of, caplog
):
    damaged(folder / name, TORN[how]((folder / name).read_bytes()))
    _, text = outcome_of("status")
    assert re.search(told, text + caplog.text)


@pytest.mark.parametrize("verb", ["resume", "status"])
@pytest.mark.parametrize("content", [b"name: [a", b"name: a\0\n", b"[]", b"name: b\n", bytes(100)])
def test_a_sweep_file_with_other_content_is_refused_and_kept(
    verb, content, folder, damaged, outcome_of
):
    path = folder / "sweep.yaml"
    damaged(path, content)
    ended, text = outcome_of(verb)
    assert path.read_bytes() == content
    refuses = verb == "resume"
    assert ended.code == (2 if refuses else 0)
    told = r"sweep.yaml: .*correct it, or remove it: a resume restores it from sweep-info"
    assert bool(re.search(told, text, re.DOTALL)) == refuses
