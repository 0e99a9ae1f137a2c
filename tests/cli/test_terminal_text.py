"""Text of users in the terminal: whole, without markup, and with escaped control characters."""

import io
import re
import sys
from types import SimpleNamespace

import pytest
from rich.text import Text
from typer.testing import CliRunner

from tune_tf.cli import app, main
from tune_tf.cli.console import PlainConsole, exit_on_errors
from tune_tf.cli.progress import TerminalProgress
from tune_tf.cli.sweep_display import print_plan, print_result
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


@pytest.mark.parametrize("arguments", ["trials small", "show small 0", "status small"])
def test_a_value_arrives_whole_in_each_table(arguments, hostile, text, sweeps, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    where = ("--storage-path", str(sweeps.storage_path))
    done = CliRunner().invoke(app, [*arguments.split(), *where])
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


@pytest.mark.parametrize("verb", ["trials small", "status", "status small", "show small"])
@pytest.mark.parametrize("name", ["small", "日本語" * 10, "x" * 70])
def test_tables_fit_80_columns_and_leave_nothing_out(verb, name, sweeps, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    sweep = sweeps(space=SPACE)
    sweep.config_of = lambda number: {"optimizer": name, "block": {"width": 8}}
    sweep.run(0, 0.5, 0.7)
    where = ("--storage-path", str(sweeps.storage_path))
    lines = CliRunner().invoke(app, [*verb.split(), *where]).stdout.splitlines()
    assert all(Text(line).cell_len <= 80 or str(sweep.path) in line for line in lines)
    assert "…" not in "".join(lines)
    letters = [letter for letter in "".join(lines) if letter in name]
    assert verb == "status" or "".join(letters).count(name[0]) >= len(name) / len(set(name))


def test_progress_without_a_terminal_fits_80_columns(sweep):
    console = PlainConsole(file=io.StringIO(), width=80)
    progress = TerminalProgress(sweep.folder.config, console)
    progress._ended.update({outcome.value: 100 for outcome in Outcome})
    progress._draw()
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert " ".join(lines).startswith("700/8 trials")


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
        *("status {}", "status --storage-path {}/..", "status {} --json", "status EVIL"),
        *("trials {}", "trials {} --csv", "show {} 0", "show {} 1", "show {} EVIL"),
        *("logs {} 1", "logs {} 0", "stop {}", "resume {}", "export {}", "sync {}"),
        *("promote {}", "report {}", "run EVIL", "run sweep.yaml", "run sweep.yaml EVIL=1"),
        *("init EVIL", "init --schema -o EVIL/a", "nonsenseEVIL"),
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
