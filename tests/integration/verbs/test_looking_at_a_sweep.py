"""The verbs that look at a sweep, used while it runs, after it was killed, and after its end."""

import contextlib
import json
import os
import signal
from pathlib import Path

import psutil
import pytest
from record_and_mlflow import seen_in
from terminal import in_a_terminal, until

from tune_tf.inspection import SweepState, SweepView
from tune_tf.sweep_folder import SweepFolder

pytestmark = [pytest.mark.cluster, pytest.mark.mlflow, pytest.mark.slow]

WORKLOAD = """
from tune_tf.workloads.digits import DigitsMLP

class Moody(DigitsMLP):
    def build_model(self, config):
        print("building a model of width", config["width"])
        if config["width"] == 32 and config["optimizer"] == "sgd":
            raise ValueError("no sgd of that width")
        return super().build_model(config)
"""


def _view(cwd):
    return SweepView.open("tiny", cwd / "sweeps")


def test_a_user_looks_at_a_sweep_before_its_kill_after_it_and_at_its_end(
    command, verb, sweep_file, tmp_path
):
    (tmp_path / "mine.py").write_text(WORKLOAD)
    settings = (
        "workload=mine.py:Moody",
        "budget.num_samples=5",
        "epochs=150",
        "checkpoint_interval_s=0.1",
    )
    process = command("run", str(sweep_file), *settings, cwd=tmp_path)
    until(lambda: list(tmp_path.glob("sweeps/*/trial_*/checkpoint_*/trial.npz")))
    until(lambda: any(trial.result.iterations for trial in _view(tmp_path).running))
    code, out, err = verb("status", "tiny", "--json", cwd=tmp_path)
    assert code == 0, err
    status = json.loads(out)
    assert status["state"] == "running"
    assert str(process.pid) in status["driver"]
    assert status["running"]
    assert process.poll() is None
    assert _addresses_that_are_listened_on(process.pid) == {"127.0.0.1"}

    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=240)
    os.rename(tmp_path / "mlflow.db", tmp_path / "away.db")  # noqa: PTH104 - no store is needed
    code, out, err = verb("status", "--json", cwd=tmp_path)
    assert code == 0, err
    (listed,) = json.loads(out)
    assert listed["state"] == "interrupted"
    assert listed["trials"].get("interrupted", 0) >= 1
    assert "running" not in listed["trials"]
    os.rename(tmp_path / "away.db", tmp_path / "mlflow.db")  # noqa: PTH104

    resumed = command("resume", "tiny", cwd=tmp_path)
    until(lambda: _view(tmp_path).state is SweepState.RUNNING)
    code, _, err = verb("resume", "tiny", cwd=tmp_path)
    assert code == 2
    assert f"process {resumed.pid} on" in err
    drawn = in_a_terminal("status", "tiny", "--follow", cwd=tmp_path)
    assert "\x1b[2K" in drawn  # it drew again in place
    assert "5/5 trials" in drawn
    out, err = resumed.communicate(timeout=240)
    assert resumed.returncode == 0, err

    folder = SweepFolder.open("tiny", tmp_path / "sweeps").path
    _assert_that_views_tell_the_truth(verb, folder, tmp_path)


def _addresses_that_are_listened_on(pid: int) -> set[str]:
    """Return them for a process and all that it has started; they must be of this machine alone."""
    processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    found = set()
    for process in processes:
        with contextlib.suppress(psutil.Error):  # it has ended
            for connection in process.net_connections(kind="inet"):
                if connection.status == psutil.CONN_LISTEN:
                    found.add(connection.laddr.ip.removeprefix("::ffff:"))
    return found


def _assert_that_views_tell_the_truth(verb, folder, cwd):
    truth = seen_in(folder)
    code, out, err = verb("trials", "tiny", "--json", cwd=cwd)
    assert code == 0, err
    rows = json.loads(out)
    assert [row["number"] for row in rows] == list(range(5))
    assert {row["trial_id"] for row in rows} == set(truth)
    outcomes = {row["trial_id"]: row["outcome"] for row in rows}
    assert outcomes == {trial_id: seen.reason for trial_id, seen in truth.items()}
    result = SweepView.of(SweepFolder.open(folder)).result

    code, out, _ = verb("show", "tiny", "--json", cwd=cwd)
    assert code == 0
    best = json.loads(out)
    assert best["trial_id"] == result.best_trial.trial_id
    assert Path(best["checkpoint"], "trial.npz").is_file()
    code, out, _ = verb("show", "tiny", best["trial_id"], "--json", cwd=cwd)
    shown = json.loads(out)
    assert len(shown["curve"]["values"]) == shown["iterations"]
    assert len(shown["mlflow_run_id"]) == 32
    failed = next((row for row in rows if row["outcome"] == "error"), None)
    assert failed is not None, outcomes
    code, out, _ = verb("show", "tiny", str(failed["number"]), cwd=cwd)
    assert "ValueError: no sgd of that width" in out

    code, out, _ = verb("logs", "tiny", str(failed["number"]), "--follow", cwd=cwd)
    assert (code, out.splitlines()[-1]) == (0, "building a model of width 32")
    widths = {row["number"]: row["config"]["width"] for row in rows}
    for number in (0, best["number"]):  # each in its own, though processes serve many trials
        code, out, _ = verb("logs", "tiny", str(number), cwd=cwd)
        told = {line.rpartition(" ")[2] for line in out.splitlines() if "a model of width" in line}
        assert told == {str(widths[number])}
