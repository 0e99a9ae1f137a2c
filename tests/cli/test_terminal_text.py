"""Text of users in the terminal: whole, without markup, with escaped control characters."""

import io
import logging
import re
import sys

import pytest
from rich.text import Text
from typer.testing import CliRunner

from tune_tf.cli import app, main
from tune_tf.cli.console import PlainConsole
from tune_tf.cli.progress import TerminalProgress
from tune_tf.cli.sweep_display import print_result
from tune_tf.inspection import SweepView
from tune_tf.outcome import Outcome

EVIL = "a\x1b]0;b\x07c\rd\be\x7ff\x9b2Jg\u202eh\u2066i\u061cj[red]k[/] :smile: [/b] \\[m]"
ESCAPED = r"a\x1b]0;b\x07c\rd\x08e\x7ff\x9b2Jg\u202eh\u2066i\u061cj[red]k[/] :smile: [/b] \[m]"
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
        monkeypatch.setattr(logging, "lastResort", None)
        with pytest.raises(SystemExit):
            main()
        return "".join(each.buffer.getvalue().decode() for each in streams)

    return run


@pytest.fixture
def evil(sweeps):
    """A sweep all of whose texts hold control characters and markup."""
    space = {"optimizer": {"choice": ["sgd", EVIL]}, "block": {"width": 8}}
    sweep = sweeps(space=space, objective={"metric": EVIL, "mode": "max"})
    sweep.config_of = lambda number: {"optimizer": EVIL, "block": {"width": 8}}
    sweep.run(0, 0.5, 0.7, **{EVIL: 0.5}, hostname=EVIL, mlflow_run_id="f")
    sweep.start(1)
    sweep.report(1, 0.4, done=Outcome.ERROR, stop_cause=EVIL)
    for name in ("error.txt", "log.txt"):
        text = f"{EVIL}\udcff"
        (sweep.path / "trial_00001" / name).write_text(text, errors="surrogateescape")
    sweep.end(1, Outcome.ERROR, cause=EVIL)
    sweep.diary.record_session_end(interrupted=False, run_ids={}, ended_early=f"{EVIL}\udcff")
    sweep.leave()
    return sweep


@pytest.mark.parametrize(
    ("arguments", "holds"),
    [
        *((each, True) for each in ("status {}", "show {} 0", "show {} 1")),
        *((each, True) for each in ("logs {} 1", "run EVIL")),
        *((each, False) for each in ("status --storage-path {}/..", "status EVIL", "init EVIL")),
        *(
            (each, False)
            for each in ("status {} --json", "trials {}", "trials {} --csv", "logs {} 0")
        ),
        *((each, False) for each in ("stop {}", "resume {}", "export {}", "sync {}", "report {}")),
        *((each, False) for each in ("promote {}", "run sweep.yaml", "run sweep.yaml EVIL=1")),
        *((each, False) for each in ("init --example digits -o EVIL/a", "nonsenseEVIL")),
    ],
)
def test_no_verb_prints_control_characters_and_texts_arrive_whole(
    arguments, holds, evil, printed, monkeypatch, tmp_path, caplog
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tune_tf.report.plots.PLOTS", {})
    (tmp_path / "sweep.yaml").write_text(f'name: "{EVIL!r:.60}"\nwith: {EVIL[-4:-2]}\n')
    words = (word.replace("{}", str(evil.path)) for word in arguments.split())
    text = printed(*(word.replace("EVIL", EVIL) for word in words))
    assert not CONTROLS.findall(text), repr(text)
    assert not holds or "".join(ESCAPED.split()) in "".join(text.split()), text


def test_the_result_of_a_sweep_holds_values_and_causes_whole(evil, capsys):
    print_result(SweepView.of(evil.folder).result, as_json=False)
    out = capsys.readouterr().out
    assert "".join(f"trial 1 error: {ESCAPED}".split()) in "".join(out.split())
    assert "".join(f"Best trial: {ESCAPED} 0.5".split()) in "".join(out.split())


@pytest.mark.parametrize("verb", ["trials small", "status", "status small", "show small"])
@pytest.mark.parametrize("name", ["small", "日本語" * 10, "x" * 70])
def test_tables_fit_80_columns_and_leave_nothing_out(verb, name, sweeps, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    sweep = sweeps(space={"optimizer": {"choice": ["adamw", name]}, "block": {"width": 8}})
    sweep.config_of = lambda number: {"optimizer": name, "block": {"width": 8}}
    sweep.run(0, 0.5, 0.7)
    where = ("--storage-path", str(sweeps.storage_path))
    lines = CliRunner().invoke(app, [*verb.split(), *where]).stdout.splitlines()
    assert all(Text(line).cell_len <= 80 or str(sweep.path) in line for line in lines)
    assert "…" not in "".join(lines)
    assert verb == "status" or "".join(lines).count(name[0]) >= name.count(name[0])


@pytest.mark.parametrize("is_terminal", [False, True])
def test_progress_fits_80_columns_and_leaves_nothing_out(sweep, is_terminal):
    console = PlainConsole(file=io.StringIO(), width=80, force_terminal=is_terminal)
    progress = TerminalProgress(sweep.folder.config, console)
    view = SweepView.open(sweep.path)
    view.__dict__["counts"] = {outcome.value: 100 for outcome in Outcome}
    with progress:
        progress._draw(view)
    lines = Text.from_ansi(console.file.getvalue()).plain.splitlines()
    assert max(map(len, lines)) <= 80
    text = " ".join(" ".join(lines).replace("━", "").split())
    assert "/8 trials" in text
    assert all(f"100 {outcome.value}" in text for outcome in Outcome)


def test_a_warning_of_any_verb_says_that_it_is_one(printed):
    printed("--version")
    record = {"msg": "[red]\x1b", "levelno": logging.WARNING, "levelname": "WARNING"}
    for _ in range(2):
        logging.lastResort.handle(logging.makeLogRecord(record))
    assert sys.stderr.buffer.getvalue().decode() == "warning: [red]\\x1b\n"
