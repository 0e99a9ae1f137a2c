"""Sweeps that end early, are stopped from another terminal, and go on with a larger budget."""

import json
from pathlib import Path

import pytest
from record_and_mlflow import assert_truth, parent_run
from terminal import in_a_terminal, until

from tune_tf.inspection import SweepState, SweepView
from tune_tf.record import recorded_results

pytestmark = [pytest.mark.cluster, pytest.mark.mlflow, pytest.mark.slow]


@pytest.mark.usefixtures("ray_cluster")
def test_a_budget_ends_a_sweep_and_a_larger_one_lets_it_go_on(verb, sweep_file, tmp_path):
    settings = ("scheduler={name: fifo}", "epochs=6", "budget.epochs=10", "budget.num_samples=6")
    code, out, err = verb("run", str(sweep_file), "--json", *settings, cwd=tmp_path)

    assert code == 0, err
    first = json.loads(out)
    folder = Path(first["path"])
    assert first["ended_early"] == "its budget of 10 epochs is spent"
    assert first["trials"]["out_of_budget"] >= 1
    before = assert_truth(folder)
    epochs = sum(trial.result.iterations for trial in SweepView.open(folder).trials)
    assert 10 <= epochs <= 11  # the trial may be in an iteration
    results = [recorded_results(folder, trial.number) for trial in SweepView.open(folder).trials]

    code, out, err = verb("resume", "tiny", "--json", cwd=tmp_path)
    assert code == 0, err
    assert json.loads(out)["trials"] == first["trials"]  # it has ended: nothing is run

    more = ("epochs=none", "num_samples=+2", "target=0.3")
    drawn = in_a_terminal("extend", "tiny", *more, cwd=tmp_path)
    assert "/8 trials" in drawn
    assert "Best trial" in drawn
    extended = SweepView.open(folder)
    assert "reached its target of 0.3" in extended.ended_early
    assert extended.best_value >= 0.3
    assert extended.best.state == "completed"
    after = assert_truth(folder)
    assert len(before) < len(after) <= 8
    for number, lines in enumerate(results):
        assert recorded_results(folder, number) == lines  # none was run again
    assert parent_run(folder).info.status == "FINISHED"
    assert SweepView.open(folder).config.budget.num_samples == 8

    code, _, err = verb("extend", "tiny", "num_samples=8", cwd=tmp_path)
    assert code == 2
    assert "budget: is unchanged" in err


def test_a_trial_and_then_the_sweep_are_stopped_from_another_terminal(
    untrained, verb, sweep_file, tmp_path
):
    settings = ("scheduler={name: fifo}", "epochs=4000", "checkpoint_interval_s=0.1")
    process = untrained("run", str(sweep_file), *settings, cwd=tmp_path)

    def running():
        if not list(tmp_path.glob("sweeps/*/sweep.db")):
            return []
        active = SweepView.open("tiny", tmp_path / "sweeps").running
        return [trial for trial in active if trial.result.iterations]

    number = until(running)[0].number
    code, out, err = verb("stop", "tiny", "--trial", str(number), "--json", cwd=tmp_path)
    assert code == 0, err
    seen = SweepView.open("tiny", tmp_path / "sweeps")
    stopped = seen.trial(str(number))
    assert (stopped.state, stopped.result.cause) == ("pruned", "stopped by hand")
    assert seen.state is SweepState.RUNNING

    until(running)
    code, out, err = verb("stop", "tiny", cwd=tmp_path)
    assert code == 0, err
    assert "interrupted" in out
    out, err = process.communicate(timeout=240)
    assert process.returncode == 130, err
    assert "tune-tf resume" in out

    code, _, err = verb("stop", "tiny", cwd=tmp_path)
    assert code == 2
    assert "is not running, it is interrupted" in err

    process = untrained("resume", "tiny", cwd=tmp_path)
    until(running)
    code, out, err = verb("stop", "tiny", "--end", cwd=tmp_path)
    assert code == 0, err
    assert "Ended early: it was ended by hand" in out
    out, err = process.communicate(timeout=240)
    assert process.returncode == 1, err  # none has come to its limit
    folder = seen.folder.path
    trials = assert_truth(folder)
    assert {trial.reason for trial in trials.values()} <= {"pruned", "out_of_budget"}

    (folder / "report" / "report.html").unlink()
    code, out, err = verb("report", "tiny", cwd=tmp_path)
    assert code == 0, err
    page = Path(out.strip()).read_text()
    assert "It ended early: it was ended by hand." in page
