"""Run the README's first command, `make sweep`, and check its outcome."""

import subprocess
from pathlib import Path

from record_and_mlflow import assert_truth, parent_run

from tune_tf.sweep_folder import SweepFolder


def main() -> None:
    """Run it; all of its trials have to stand alike in its record and in MLflow."""
    subprocess.run(["make", "sweep"], check=True)
    (path,) = Path("sweeps").resolve().glob("digits-cnn-*")
    trials = assert_truth(path)
    config = SweepFolder.open(path).config
    assert len(trials) == config.budget.num_samples, f"{len(trials)} trials"
    reasons = sorted({trial.reason for trial in trials.values()})
    assert reasons == ["completed", "pruned"], reasons
    parent = parent_run(path)
    assert parent.info.status == "FINISHED", parent.info.status
    best = parent.data.metrics["best/val_accuracy"]
    assert best > 0.95, parent.data.metrics
    assert (path / "report" / "report.html").is_file()
    print(f"== make sweep: {len(trials)} trials, best val_accuracy {best}", flush=True)


if __name__ == "__main__":
    main()
