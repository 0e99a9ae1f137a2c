"""The verbs that look at sweeps, on folders as drivers leave them."""

import io
import json

import pytest
from rich.console import Console
from ruamel.yaml import YAML
from typer.testing import CliRunner

from tune_tf.cli import app
from tune_tf.cli.console import sparkline
from tune_tf.cli.verbs.sweeps import follow_status
from tune_tf.errors import UnknownSweepError, UnknownTrialError
from tune_tf.events import SweepFingerprint
from tune_tf.inspection import SweepView
from tune_tf.outcome import Outcome


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


def test_list_tells_state_trials_and_best_value(run_verb, ended, sweeps):
    sweeps(name="fresh").run(0, 0.25)
    first, second = (line.split() for line in sorted(run_verb("list").splitlines()[1:]))
    assert first[1:6] == ["running", "val_accuracy", "0.25", "1", "completed"]
    assert second[1:6] == ["ended", "val_accuracy", "0.8", "4", "completed"]


def test_list_says_that_there_is_none(run_verb, sweeps):
    sweeps.storage_path.mkdir()
    assert run_verb("list") == f"There are no sweeps in {sweeps.storage_path}.\n"


def test_list_names_what_it_cannot_read(run_verb, ended):
    (ended.path / "sweep-info").write_text('{"format": 99, "tune_tf": "9.1"}')
    assert "written by tune_tf 9.1, which is newer" in run_verb("list")
    assert list(json.loads(run_verb("list", "--json"))["unreadable"]) == [ended.path.name]


def test_status_tells_the_best_trial_and_those_that_run(run_verb, sweep):
    sweep.run(1, 0.5, 0.75)
    sweep.start(0)
    sweep.report(0, 0.3)
    text = run_verb("status", "small")
    assert "1/8 trials" in text
    assert "Best val_accuracy 0.75 by trial 1 (a8f1e000), completed at iteration 2" in text
    assert ["momentum", "0.9"] in [line.split() for line in text.splitlines()]
    assert " ".join(text.splitlines()[-1].split()) == "0 a8624273 1/9 0.3 2 s node-1 127.0.0.1"


def test_status_tells_why_trials_failed(run_verb, sweep):
    sweep.start(0)
    sweep.end(0, Outcome.ERROR, "FileNotFoundError: photos")
    assert "  trial 0 error: FileNotFoundError: photos" in run_verb("status", "small")


def test_status_of_a_killed_sweep_tells_how_to_go_on(run_verb, sweep):
    sweep.start(0)
    sweep.leave()
    text = run_verb("status", "small")
    assert "interrupted" in text
    assert text.endswith(f"tune-tf resume {sweep.path}\n")


def test_status_as_json_holds_the_same(run_verb, sweep):
    sweep.run(1, 0.5, float("nan"), outcome=Outcome.DIVERGED)
    sweep.start(0)
    status = json.loads(run_verb("status", "small", "--json"))
    assert status["state"] == "running"
    assert status["trials"] == {"diverged": 1, "running": 1}
    assert [trial["trial_id"] for trial in status["running"]] == ["a8624273"]
    assert status["best"] is None


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
        lambda before: SweepView.of(sweep.folder, lambda: sweep.now, before),
        Console(file=text, width=120, **console),
        wait=lambda seconds: next(left)(),
    )
    return text.getvalue()


def test_following_without_a_terminal_prints_a_line_for_each_change(sweep):
    text = watched(
        sweep,
        lambda: None,
        lambda: sweep.run(0, 0.5),
        lambda: None,
        sweep.finish,
    )
    lines = text.splitlines()
    assert lines[0].endswith("0/8 trials (), 0 iterations, no result yet")
    assert lines[1].endswith("1/8 trials (1 completed), 1 iteration, best val_accuracy 0.5")
    assert "ended" in lines[2]


def test_following_in_a_terminal_draws_again_in_place(sweep):
    text = watched(sweep, lambda: sweep.run(0, 0.5), sweep.finish, force_terminal=True)
    assert text.index("0/8 trials") < text.index("1/8 trials") < text.index("ended")
    assert "\x1b[2K" in text  # lines are wiped before they are drawn again


def test_trials_are_sorted_filtered_and_limited(run_verb, ended):
    arguments = ("--sort", "val_accuracy", "--where", "iterations<3", "--limit", "2")
    header, *rows, count = run_verb("trials", "small", *arguments).splitlines()
    assert header.split()[:4] == ["trial", "id", "outcome", "val_accuracy"]
    assert [row.split()[0] for row in rows] == ["0", "1"]
    assert count == "2 of 4 trials"
    as_json = json.loads(run_verb("trials", "small", *arguments, "--json"))
    assert [row["number"] for row in as_json] == [0, 1]
    as_csv = run_verb("trials", "small", *arguments, "--csv").splitlines()
    assert [line.split(",")[0] for line in as_csv] == ["number", "0", "1"]


def test_show_tells_all_of_a_trial(run_verb, ended):
    checkpoint = ended.checkpoint(2, 0)
    text = run_verb("show", "small", "63e")
    lines = [line.split() for line in text.splitlines()]
    assert ["iterations", "3,", "trained", "for", "6", "s"] in lines
    assert ["node", "node-1", "127.0.0.1,", "process", "72"] in lines
    assert ["block/width", "10"] in lines
    assert ["▁█▇", "0.3", "to", "0.8"] in lines
    assert [str(checkpoint)] in lines
    assert "momentum" not in text


def test_show_tells_whether_a_graph_was_traced_for_the_trial(run_verb, sweep):
    told = "traced for this trial, as it runs models.Scaled"
    sweep.run(0, 0.5, **{"perf/graph": told})

    assert f"graph {told}" in " ".join(run_verb("show", "small", "0").split())
    assert json.loads(run_verb("show", "small", "0", "--json"))["graph"] == told


def test_show_tells_what_frozen_layers_save_or_why_they_do_not(run_verb, sweep):
    told = "not shared: flip draws random numbers"
    sweep.run(0, 0.5, **{"perf/frozen_layers": told})
    sweep.run(1, 0.5)
    assert f"frozen layers  {told}\n" in run_verb("show", "small", "0")
    assert json.loads(run_verb("show", "small", "0", "--json"))["frozen_layers"] == told
    assert "frozen" not in run_verb("show", "small", "1")


def test_show_of_a_failed_trial_ends_with_its_error(run_verb, sweep):
    sweep.start(0)
    (sweep.path / "trial_00000" / "error.txt").write_text("Traceback ...\nValueError: [no] good")
    sweep.end(0, Outcome.ERROR, "ValueError: [no] good")
    assert run_verb("show", "small", "0").endswith("Error\nTraceback ...\nValueError: [no] good\n")
    as_data = json.loads(run_verb("show", "small", "0", "--json"))
    assert (as_data["outcome"], as_data["cause"]) == ("error", "ValueError: [no] good")
    assert as_data["curve"] == {"metric": "val_accuracy", "values": {}}


def test_best_is_yaml_that_reads_back_as_the_config(run_verb, ended):
    checkpoint = ended.checkpoint(2, 0)
    text = run_verb("best", "small")
    assert YAML(typ="safe").load(text) == {"optimizer": "adamw", "block": {"width": 10}}
    assert f"# checkpoint: {checkpoint}\n" in text
    as_data = json.loads(run_verb("best", "small", "--json"))
    assert (as_data["value"], as_data["number"]) == (0.8, 2)
    assert as_data["config"] == {"optimizer": "adamw", "block": {"width": 10}}


def test_best_of_nothing_ends_with_code_1(run_verb, sweep):
    run_verb("best", "small", code=1)


def test_compare_sets_sweeps_beside_each_other(run_verb, ended, sweeps):
    sweeps(name="other").run(1, 0.85)
    text = run_verb("compare", "small", "other")
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines()]
    assert ["best val_accuracy", "0.8", "0.85"] in cells
    assert ["iterations", "7", "1"] in cells
    assert ["momentum", "-", "0.9"] in cells
    as_data = json.loads(run_verb("compare", "small", "other", "--json"))
    assert as_data["best"].startswith("other-")
    assert as_data["best_configs"]["momentum"] == [None, 0.9]


@pytest.mark.parametrize("verb", ["status", "trials", "best", "compare"])
def test_an_unknown_sweep_is_an_error_that_names_a_near_one(run_verb, ended, verb):
    with pytest.raises(UnknownSweepError, match="did you mean 'small'"):
        run_verb(verb, "smal")


def test_an_unknown_trial_is_an_error(run_verb, ended):
    with pytest.raises(UnknownTrialError, match="has no trial '77'"):
        run_verb("show", "small", "77")


@pytest.mark.parametrize(
    ("values", "width", "line"),
    [
        ([], 8, ""),
        ([3.0, 3.0], 8, "▁▁"),
        ([0.0, 7.0, 3.0], 8, "▁█▄"),
        (list(range(100)), 8, "▁▂▃▄▅▆▇█"),
        ([1e308, -1e308], 8, "█▁"),
    ],
)
def test_a_sparkline_spans_from_the_lowest_to_the_highest_value(values, width, line):
    assert sparkline(values, width) == line


def test_logs_prints_what_a_trial_wrote_from_the_lines_asked_for(run_verb, ended):
    (ended.path / "trial_00002" / "log.txt").write_bytes(b"one\ntwo \xe2\x82\xac\nthree\n")
    assert run_verb("logs", "small", "63e", "--tail", "2") == "two €\nthree\n"
    assert run_verb("logs", "small", "2", "--follow") == "one\ntwo €\nthree\n"  # it has ended
    assert json.loads(run_verb("logs", "small", "2", "--json"))["text"] == "one\ntwo €\nthree\n"


def test_show_prints_paths_whole_on_a_narrow_terminal(run_verb, ended, monkeypatch):
    log = ended.path / "trial_00002" / "log.txt"
    log.write_text("one")
    monkeypatch.setenv("COLUMNS", "40")
    assert f"\n  {log}\n" in run_verb("show", "small", "2")


def test_logs_of_a_trial_without_one_says_so(sweeps, ended):
    where = ("--storage-path", str(sweeps.storage_path))
    done = CliRunner().invoke(app, ["logs", "small", "0", *where])
    assert (done.exit_code, done.stdout) == (0, "")
    assert "trial 0 has no log" in done.stderr


def test_status_tells_the_fingerprint_of_a_reproducible_sweep_once_it_has_ended(run_verb, sweep):
    found = SweepFingerprint("7144807a4add01ec", 104, {"keras": "3.15"}, ("it was ended by hand",))
    sweep.diary.record_session_end(interrupted=False, run_ids={}, fingerprint=found)
    sweep.leave()
    lines = run_verb("status", "small").splitlines()
    assert "Fingerprint 7144807a4add01ec, not comparable: it was ended by hand" in lines
    assert "  104 results, with keras 3.15" in lines
    assert json.loads(run_verb("status", "small", "--json"))["fingerprint"] == {
        "digest": "7144807a4add01ec",
        "num_results": 104,
        "environment": {"keras": "3.15"},
        "reasons": ["it was ended by hand"],
    }
    sweep.drive()  # what it was is no longer so
    assert "Fingerprint" not in run_verb("status", "small")
