"""Text of users in the terminal: whole, without markup, and with escaped control characters."""

import io
import re
import sys
from types import SimpleNamespace

import pytest
from rich.text import Text
from typer.testing import CliRunner

from tune_tf.cli import app, main
from tune_tf.cli.console import FittingTable, PlainConsole, exit_on_errors
from tune_tf.cli.progress import TerminalProgress
from tune_tf.cli.result_tables import print_plan, print_result
from tune_tf.errors import WorkloadError
from tune_tf.formatting import printable
from tune_tf.inspection import SweepView
from tune_tf.outcome import Outcome

HOSTILE = {
    "[red]x[/red]": "[red]x[/red]",
    "[/]": "[/]",
    "[bold": "[bold",
    "\\[a]": "\\[a]",
    "[link=http://a]b[/link]": "[link=http://a]b[/link]",
    ":smile:": ":smile:",
    "a\x1b]0;b\x07c": "a\\x1b]0;b\\x07c",
    "a\x1b[2Jb": "a\\x1b[2Jb",
    "a\rb\x00c": "a\\rb\\x00c",
    "a\u202eb": "a\\u202eb",
    "a\x9bb": "a\\x9bb",
}
SPACE = {"optimizer": {"choice": ["adamw", "sgd", *HOSTILE]}, "block": {"width": 8}}


@pytest.fixture(params=HOSTILE, ids=range(len(HOSTILE)))
def text(request):
    return request.param


@pytest.fixture
def hostile(sweeps, text):
    """An ended sweep whose configs, causes and nodes hold a hostile text."""
    sweep = sweeps(space=SPACE)
    sweep.config_of = lambda number: {"optimizer": text, "block": {"width": 8}}
    sweep.run(0, 0.5, 0.7)
    sweep.start(1)
    sweep.report(1, 0.4, done=Outcome.ERROR, hostname=text)
    sweep.end(1, Outcome.ERROR, cause=text)
    sweep.finish()
    return sweep


@pytest.mark.parametrize("verb", ["trials", "show", "status", "compare"])
def test_a_value_arrives_whole_in_each_table(verb, hostile, text, sweeps, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    sweeps(name="other", space=SPACE).run(0, 0.1)
    more = {"show": ["0"], "compare": ["other"]}.get(verb, [])
    arguments = [verb, "small", *more, "--storage-path", str(sweeps.storage_path)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert HOSTILE[text] in done.stdout


def test_the_result_of_a_sweep_holds_values_and_causes_whole(hostile, text, capsys):
    print_result(SweepView.of(hostile.folder).result, as_json=False)
    out = capsys.readouterr().out
    assert f"trial 1 error: {printable(text)}" in out
    assert HOSTILE[text] in out


def test_the_metric_of_a_sweep_may_look_like_markup(sweeps, text, capsys):
    sweep = sweeps(objective={"metric": text, "mode": "max"})
    sweep.run(0, 0.5, **{text: 0.25})
    sweep.finish()
    print_result(SweepView.of(sweep.folder).result, as_json=False)
    assert f"{HOSTILE[text]} " in capsys.readouterr().out


def test_progress_holds_a_name_whole(sweep, text):
    console = PlainConsole(file=io.StringIO(), width=200)
    progress = TerminalProgress(sweep.folder.config, console)
    progress._print(Text(text))
    without_bells = HOSTILE[text].replace("\\r", "").replace("\\x07", "")  # rich drops them
    assert console.file.getvalue().strip() == without_bells


def test_an_error_is_printed_with_escaped_control_characters(text, capsys):
    with pytest.raises(SystemExit), exit_on_errors():
        raise WorkloadError(f"file {text} is broken")
    assert capsys.readouterr().err == f"error: file {HOSTILE[text]} is broken\n"


HEADERS = ("trial", "id", "outcome", "val_accuracy", "optimizer", "width", "note", "began")


def table_text(width, note="short", name="val_accuracy"):
    console = PlainConsole(file=io.StringIO(), width=width)
    table = FittingTable(*HEADERS[:3], name, *HEADERS[4:], kept=4)
    for number in range(3):
        row = (str(number), f"a1b2c_0000{number}", "completed", "0.98", "sgd", "64", note)
        table.add_row(*row, "2026-11-25 20:00:01")
    console.print(table)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [30, 40, 80, 120, 200])
@pytest.mark.parametrize("note", ["s", "日本語" * 10, "x" * 300, "🎉 " * 20])
def test_a_table_fits_the_terminal_and_names_what_it_left_out(width, note):
    text = table_text(width, note)
    assert max(Text(line.rstrip()).cell_len for line in text.splitlines()) <= width
    words = text.replace(",", " ").replace(")", " ").replace("(", " ").split()
    assert set(HEADERS[4:]) <= set(words)
    is_whole = "more column" not in text
    assert is_whole == (note in text and "20:00:01" in text)


def test_number_id_outcome_and_value_stay_at_80_columns():
    lines = table_text(80, "x" * 300).splitlines()
    assert lines[0].split() == ["trial", "id", "outcome", "val_accuracy", *HEADERS[4:6]]
    assert lines[1].split()[:4] == ["0", "a1b2c_00000", "completed", "0.98"]
    assert lines[4] == "2 more columns (note, began): widen the terminal, or use --json"


def test_what_is_kept_wraps_in_a_terminal_too_narrow_for_it():
    text = table_text(30, name="validation_mean_absolute_error")
    assert "a1b2c_00000" not in text
    assert "000" in text
    assert "4 more columns" in text


def test_the_trials_of_a_sweep_are_readable_at_80_columns(ended, sweeps, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    where = ("--storage-path", str(sweeps.storage_path))
    lines = CliRunner().invoke(app, ["trials", "small", *where]).stdout.splitlines()
    assert lines[0].split()[:4] == ["trial", "id", "outcome", "val_accuracy"]
    assert lines[1].split()[:4] == ["0", "a8624273", "completed", "0.7"]
    assert all(len(line) <= 80 and "…" not in line for line in lines)
    lines = CliRunner().invoke(app, ["list", *where]).stdout.splitlines()
    assert lines[1].split()[1:4] == ["ended", "val_accuracy", "0.8"]
    assert all(len(line) <= 80 and "…" not in line for line in lines)


@pytest.mark.parametrize(
    ("trials", "width", "line"),
    [
        (
            "3 completed  1 pruned",
            80,
            "small-20261126-120450  val_accuracy 0.75  3 completed  1 pruned",
        ),
        ("33 completed  1 pruned", 60, "small-20261126-120450  val_accuracy 0.75  33 completed"),
    ],
    ids=["whole", "wrapped"],
)
def test_counts_of_trials_wrap_last_and_before_any_other_column(trials, width, line):
    console = PlainConsole(file=io.StringIO(), width=width)
    table = FittingTable("sweep", "best", "trials", "began", kept=3, wrap=["trials"])
    table.add_row("small-20261126-120450", "val_accuracy 0.75", trials, "2026-11-25 20:00:01")
    console.print(table)
    assert console.file.getvalue().splitlines()[1].startswith(line)


def test_a_plan_counts_one_epoch(sweeps, capsys):
    config = sweeps(scheduler={"name": "fifo"}, epochs=1).folder.config
    resources = SimpleNamespace(cpus=1, gpus=0.0)
    plan = SimpleNamespace(config=config, resources=resources, max_concurrent_trials=2, examples=[])
    print_plan(plan, as_json=False)
    assert "fifo, at most 1 epoch " in capsys.readouterr().out


EVIL = "a\x1b]0;b\x07c\rd\be\x7ff\x9b2Jg\u202eh\u2066i\u061cj\udcffk"
CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e-\u202e\u2060-\u206f\ud800-\udfff]"
)
"""Characters that no verb prints in a terminal: all controls but newlines and tabs."""


class Terminal(io.TextIOWrapper):
    """A stream that says it is a terminal, and draws without colors."""

    def isatty(self):
        return True


@pytest.fixture
def printed(monkeypatch):
    """Run a verb in a terminal; return what it printed on both streams."""

    def run(*arguments):
        streams = [Terminal(io.BytesIO(), "utf-8", write_through=True) for _ in range(2)]
        monkeypatch.setattr(sys, "stdout", streams[0])
        monkeypatch.setattr(sys, "stderr", streams[1])
        monkeypatch.setattr(sys, "argv", ["tune-tf", *map(str, arguments)])
        monkeypatch.setenv("TERM", "dumb")
        monkeypatch.setenv("COLUMNS", "300")
        with pytest.raises(SystemExit):
            main()
        return "".join(each.buffer.getvalue().decode() for each in streams)

    return run


@pytest.fixture
def evil(sweeps):
    """A sweep all of whose texts hold control characters."""
    space = {"optimizer": {"choice": ["sgd", EVIL.replace("\udcff", "")]}, "block": {"width": 8}}
    metric = {"metric": f"v{EVIL[:-3]}", "mode": "max"}
    sweep = sweeps(space=space, objective=metric)
    sweep.config_of = lambda number: {"optimizer": EVIL[:-2], "block": {"width": 8}}
    sweep.run(
        0, 0.5, 0.7, **{metric["metric"]: 0.5, EVIL[:-2]: 1.0}, hostname=EVIL, mlflow_run_id="f"
    )
    sweep.start(1)
    sweep.report(1, 0.4, done=Outcome.ERROR, stop_cause=EVIL[:-2])
    (sweep.path / "trial_00001" / "error.txt").write_text(EVIL, errors="surrogateescape")
    (sweep.path / "trial_00001" / "log.txt").write_text(EVIL, errors="surrogateescape")
    sweep.end(1, Outcome.ERROR, cause=EVIL[:-2])
    sweep.diary.record_session_end(interrupted=False, run_ids={}, ended_early=EVIL)
    sweep.leave()
    return sweep


@pytest.mark.parametrize(
    "arguments",
    [
        *("status {}", "list", "trials {}", "trials {} --csv", "show {} 0", "show {} 1", "best {}"),
        *(
            "logs {} 1",
            "logs {} 0",
            "compare {} {}",
            "stop {}",
            "resume {}",
            "export {}",
            "sync {}",
        ),
        *("promote {}", "report {}", "status EVIL", "show {} EVIL", "trials {} --sort EVIL"),
        *("trials {} --where EVIL", "run EVIL", "run sweep.yaml", "init EVIL", "nonsenseEVIL"),
        *(
            "status {} --json",
            "run sweep.yaml EVIL=1",
            "simulate --problem EVIL",
            "schema -o EVIL/a",
        ),
    ],
)
def test_no_verb_prints_control_characters(
    arguments, evil, sweeps, printed, monkeypatch, tmp_path, caplog
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tune_tf.report.plots.PLOTS", {})
    (tmp_path / "sweep.yaml").write_text(f'name: "{EVIL!r:.60}"\nwith: {EVIL[-4:-2]}\n')
    words = [
        word.replace("EVIL", EVIL.replace("\udcff", "")).format(evil.path)
        for word in arguments.split()
    ]
    text = printed(*words)
    assert not CONTROLS.findall(text), repr(text)
