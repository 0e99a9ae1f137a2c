"""The verbs that look at sweeps, on folders as drivers leave them."""

import csv
import io
import json
import subprocess
import sys

import pytest
from rich.console import Console
from typer.testing import CliRunner

from tune_tf.cli import app
from tune_tf.cli.verbs.sweeps import follow_status
from tune_tf.inspection import SweepView
from tune_tf.outcome import Outcome
from tune_tf.record import SweepFingerprint


@pytest.fixture
def run_verb(sweeps, monkeypatch):
    """Call a verb; return what it printed, or raise what it raised."""
    monkeypatch.setenv("COLUMNS", "160")

    def run_verb(*arguments, code=0):
        where = ("--storage-path", str(sweeps.storage_path))
        done = CliRunner().invoke(app, [*arguments, *where])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        assert done.exit_code == code, done.output
        return done.stdout

    return run_verb


def test_status_without_a_name_lists_the_sweeps(run_verb, ended, sweeps, monkeypatch):
    fresh = sweeps(name="fresh" * 20)
    fresh.run(0, 0.25)
    monkeypatch.setenv("COLUMNS", "80")
    lines = run_verb("status").splitlines()
    assert {fresh.folder.sweep_id, ended.folder.sweep_id} == {*lines[::2]}  # whole, to be copied
    assert sorted(line.partition("  began")[0].split() for line in lines[1::2]) == [
        ["ended", "4", "completed", "val_accuracy", "0.8"],
        ["running", "1", "completed", "val_accuracy", "0.25"],
    ]
    rows = {row["state"]: row for row in json.loads(run_verb("status", "--json"))}
    assert (rows["ended"]["best"]["number"], rows["ended"]["trials"]) == (2, {"completed": 4})


def test_status_tells_the_best_trial_and_those_that_run(run_verb, sweep):
    sweep.run(1, 0.5, 0.75)
    sweep.start(0)
    sweep.report(0, 0.3)
    text = run_verb("status", "small")
    assert "1/8 trials" in text
    assert "Best trial: val_accuracy 0.75 by number 1 (a8f1e000), completed at epoch 2" in text
    assert ["momentum", "0.9"] in [line.split() for line in text.splitlines()]
    assert " ".join(text.splitlines()[-1].split()) == "0 1/9 0.3 2 s node-1 127.0.0.1"


def test_status_of_a_killed_sweep_tells_why_trials_failed_and_how_to_go_on(run_verb, sweep):
    sweep.start(0)
    sweep.end(0, Outcome.ERROR, "FileNotFoundError: photos")
    sweep.start(1)
    sweep.leave()
    text = run_verb("status", "small")
    assert "  trial 0 error: FileNotFoundError: photos" in text
    assert "1 interrupted" in text
    assert f"tune-tf resume {sweep.path}\n" in text


@pytest.mark.parametrize(
    ("outcome", "interrupted", "code"),
    [(Outcome.COMPLETED, False, 0), (Outcome.PRUNED, False, 1), (Outcome.COMPLETED, True, 130)],
)
def test_following_ends_with_the_code_that_run_ends_with(
    run_verb, sweep, outcome, interrupted, code
):
    sweep.run(0, 0.5, outcome=outcome)
    sweep.finish(interrupted=interrupted)
    run_verb("status", "small", "--follow", code=code)


def watched(sweep, *happenings, **console):
    """Follow a sweep to whom things happen while it is waited; return what was drawn."""
    text = io.StringIO()
    left = iter(happenings)
    follow_status(
        lambda: SweepView.of(sweep.folder, lambda: sweep.now),
        Console(file=text, width=120, **console),
        wait=lambda seconds: next(left)(),
    )
    return text.getvalue()


def test_following_in_a_terminal_draws_again_in_place(sweep):
    text = watched(sweep, lambda: sweep.run(0, 0.5), sweep.finish, force_terminal=True)
    assert text.index("0/8 trials") < text.index("1/8 trials")
    assert "\x1b[2K" in text  # lines are wiped before they are drawn again


def test_csv_has_every_field(run_verb, sweep):
    sweep.run(0, 0.5)
    sweep.run(1, 0.25)
    sweep.start(2)
    sweep.end(2, Outcome.ERROR, "=1+1")
    lines = list(csv.DictReader(io.StringIO(run_verb("trials", "small", "--csv"))))
    assert [line["metrics/val_accuracy"] for line in lines] == ["0.5", "0.25", ""]
    assert [line["config/momentum"] for line in lines] == ["", "0.9", ""]
    assert lines[2]["cause"] == "=1+1"
    assert "test_metrics" not in lines[0]  # there are none


def test_show_tells_all_of_a_trial(run_verb, ended):
    checkpoint = ended.checkpoint(2, 0)
    text = run_verb("show", "small", "63e30f00")
    assert run_verb("show", "small") == text  # it is the best
    lines = [line.split() for line in text.splitlines()]
    assert ["epochs", "3,", "trained", "for", "6", "s"] in lines
    assert ["node", "node-1", "127.0.0.1,", "process", "72"] in lines
    assert ["block/width", "10"] in lines
    assert ["val_accuracy", "0.3,", "0.9,", "0.8"] in lines
    assert [str(checkpoint)] in lines
    assert "momentum" not in text


@pytest.mark.parametrize("name", ["graph", "frozen_layers"])
def test_show_tells_whether_graph_and_frozen_layers_are_shared_and_why(run_verb, sweep, name):
    told = "not shared: flip draws random numbers"
    sweep.run(0, 0.5, **{f"system/{name}": told})
    sweep.run(1, 0.5)
    assert f"{name.replace('_', ' ')} {told}" in " ".join(run_verb("show", "small", "0").split())
    assert json.loads(run_verb("show", "small", "0", "--json"))[name] == told
    assert "shared" not in run_verb("show", "small", "1")


def test_show_of_a_failed_trial_ends_with_its_error(run_verb, sweep):
    sweep.start(0)
    (sweep.path / "trial_00000" / "error.txt").write_text("Traceback ...\nValueError: [no] good")
    sweep.end(0, Outcome.ERROR, "ValueError: [no] good")
    assert run_verb("show", "small", "0").endswith("Error\nTraceback ...\nValueError: [no] good\n")
    as_data = json.loads(run_verb("show", "small", "0", "--json"))
    assert (as_data["outcome"], as_data["cause"]) == ("error", "ValueError: [no] good")
    assert as_data["curve"] == {"metric": "val_accuracy", "values": {}}


def test_logs_prints_what_a_trial_wrote_from_the_lines_asked_for(run_verb, ended):
    (ended.path / "trial_00002" / "log.txt").write_bytes(b"one\ntwo \xe2\x82\xac\nthree\n")
    assert run_verb("logs", "small", "63e30f00", "--tail", "2") == "two €\nthree\n"
    assert run_verb("logs", "small", "2", "--follow") == "one\ntwo €\nthree\n"  # it has ended
    assert run_verb("logs", "small", "0") == ""  # it has none


def test_status_tells_the_fingerprint_of_a_reproducible_sweep_once_it_has_ended(run_verb, sweep):
    found = SweepFingerprint("7144807a4add01ec", 104, {"keras": "3.15"}, ("it was ended by hand",))
    sweep.diary.record_session_end(interrupted=False, run_ids={}, fingerprint=found)
    sweep.leave()
    lines = run_verb("status", "small").splitlines()
    assert "Fingerprint 7144807a4add01ec, not comparable: it was ended by hand" in lines
    assert "  104 results, with keras 3.15" in lines
    sweep.drive()  # what it was is no longer so
    assert "Fingerprint" not in run_verb("status", "small")


@pytest.mark.slow
@pytest.mark.tf
def test_tensorflow_is_loaded_for_an_export_without_its_notes():
    script = "from tune_tf.cli.verbs import models; models._load_tensorflow()"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
    assert done.stdout == done.stderr == b""
