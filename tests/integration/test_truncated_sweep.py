"""The files of a killed sweep, cut short as a loss of power leaves them."""

import optuna
import pytest
from record_and_mlflow import assert_truth
from terminal import kill, until

from tune_tf.inspection import SweepView
from tune_tf.record import SweepHistory, recorded_results

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture
def killed(command, sweep_file, tmp_path):
    """The folder of a sweep whose driver was killed while some trials had ended and two ran."""
    root = tmp_path
    settings = (
        "budget.num_samples=8",
        "epochs=60",
        "checkpoint_interval_s=0",
        "max_concurrent_trials=2",
        "searcher.storage=sqlite:///optuna.db",
    )
    process = command("run", "tiny.yaml", *settings, cwd=root)
    try:
        until(lambda: _is_on_its_way(root), process=process)
    finally:
        kill(process)
    (folder,) = (root / "sweeps").iterdir()
    return folder


def _is_on_its_way(root):
    """Whether two trials have ended, and one that has not been at it for long runs."""
    if not list(root.glob("sweeps/*/sweep.db")):
        return False
    (folder,) = (root / "sweeps").iterdir()
    several = [trial for trial in SweepView.open(folder).trials if len(trial.checkpoints) > 1]
    running = [trial for trial in several if not trial.has_ended and trial.result.iterations < 30]
    return sum(trial.has_ended for trial in several) >= 2 and bool(running)


def test_a_sweep_goes_on_from_a_damaged_checkpoint_and_runs_no_trial_again(killed, finished):
    path = killed
    view = SweepView.open(path)
    ended = [trial for trial in view.trials if trial.has_ended]
    results = {trial.number: recorded_results(path, trial.number) for trial in ended}
    running = next(trial for trial in view.trials if not trial.has_ended and trial.checkpoints)
    newest = running.checkpoints[-1]
    file = newest / "trial.npz"
    file.write_bytes(file.read_bytes()[: file.stat().st_size * 2 // 3])
    code, _, err = finished("resume", str(path), "--json", cwd=path.parent.parent, timeout_s=480)

    assert code == 0, err
    assert "Traceback" not in err
    assert f"{running.folder.name}/{newest.name}, the newest checkpoint, is damaged" in err
    assert len(assert_truth(path)) == 8
    for number, lines in results.items():
        assert recorded_results(path, number) == lines
    storage = f"sqlite:///{path.parent.parent}/optuna.db"
    copies = optuna.load_study(study_name=path.name, storage=storage).trials
    trials = SweepHistory.read(path).trials
    assert [(trial.user_attrs["tune_trial_id"], trial.state.name) for trial in copies] == [
        (trial_id, trial.outcome.optuna) for trial_id, trial in trials.items()
    ]
    for copy, trial in zip(copies, trials.values(), strict=True):
        steps = {result["training_iteration"] for result in recorded_results(path, trial.number)}
        assert copy.intermediate_values.keys() == steps
