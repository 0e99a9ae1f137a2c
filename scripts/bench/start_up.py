"""Start-up and end of a short sweep: its wall time without training, over TensorFlow's import.

A sweep of 32 short trials takes turns with two processes that import TensorFlow at once, each in
fresh processes. The clock of the sweep starts after ``ray.init`` and stops when the results are at
hand, with report and best model; ``training`` is from the first trial's start to the last result.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measuring.interleaved import ratio_of
from measuring.summary import Target, print_summary, print_table

_CONTESTANTS = Path(__file__).parent / "contestants"
_TARGETS = {"start_up_over_imports": Target(1.4, "at most")}
_TIMEOUT_S = 900


def _sweep(num_trials: int, num_workers: int, folder: Path) -> None:
    """Run a sweep whose configs and numbers do not depend on the order; print it as JSON."""
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    sys.path.insert(0, str(_CONTESTANTS))
    from outcome import Clock

    clock = Clock()
    from tune_tf import SweepConfig, run_sweep

    config = SweepConfig.from_dict(
        {
            "name": "start-up",
            "workload": "tune_tf.workloads.digits:DigitsMLP",
            "objective": {"metric": "val_accuracy", "mode": "max"},
            "space": {
                "width": {"choice": [32, 64, 128]},
                "learning_rate": {"loguniform": [1e-4, 1e-1]},
                "optimizer": "adamw",
                "batch_size": 32,
            },
            "searcher": {"sampler": "random"},
            "scheduler": {"name": "fifo"},
            "seed": 7,
            "epochs": 3,
            "resources": {"cpus": 1},
            "budget": {"num_samples": num_trials},
            "mlflow": {"tracking_uri": f"sqlite:///{folder / 'mlflow.db'}"},
            "storage_path": str(folder / "sweeps"),
            "max_concurrent_trials": num_workers,
        }
    )
    from sweep_watcher import SweepWatcher

    result = run_sweep(config, callbacks=[SweepWatcher(clock)])
    wall_s = clock.elapsed_s()
    marks = clock.marks_s
    assert result.report_path.is_file()
    assert (result.path / "best_model").exists()
    trials = [(each.number, each.config, each.metrics["val_accuracy"]) for each in result.trials]
    training_s = marks["last result"] - marks["first trial started"]
    told = {"wall_s": wall_s, "training_s": training_s, "marks_s": marks, "trials": trials}
    print(json.dumps(told), flush=True)


def _run_sweep(num_trials: int, num_workers: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        job = f"--job={num_trials},{num_workers},{folder}"
        done = subprocess.run(
            [sys.executable, __file__, job],
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_S,
            env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2"},
        )
    if done.returncode:
        raise RuntimeError(f"the sweep failed:\n{done.stderr[-4000:]}")
    outcome: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(
        f"  {num_trials} trials, {num_workers} at a time, at load {os.getloadavg()[0]:.1f}: "
        f"{outcome['wall_s']:.1f} s, of which training {outcome['training_s']:.1f} s",
        flush=True,
    )
    return outcome


def _imports_s() -> float:
    """Return how long two processes take to import TensorFlow at once."""
    begun = time.perf_counter()
    command = [sys.executable, "-c", "import tensorflow"]
    quiet = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    processes = [subprocess.Popen(command, env=quiet, stderr=subprocess.DEVNULL) for _ in range(2)]
    assert [process.wait(_TIMEOUT_S) for process in processes] == [0, 0]
    return time.perf_counter() - begun


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smoke run: few trials")
    parser.add_argument("--rounds", type=int, default=5, help="turns of both")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Take turns, compare with a sweep of one trial at a time, and print the ratio."""
    arguments = _arguments()
    if arguments.job:
        num_trials, num_workers, folder = arguments.job.split(",", 2)
        _sweep(int(num_trials), int(num_workers), Path(folder))
        return
    num_trials, num_rounds = (3, 1) if arguments.quick else (32, arguments.rounds)
    expected = _run_sweep(num_trials, 1)["trials"]
    ratios, outcomes = [], []
    for _ in range(num_rounds):
        before_s = _imports_s()
        outcome = _run_sweep(num_trials, 2)
        imports_s = (before_s + _imports_s()) / 2
        assert outcome["trials"] == expected, "two at a time train other trials than one"
        ratios.append((outcome["wall_s"] - outcome["training_s"]) / imports_s)
        outcomes.append((imports_s, outcome))
    marks = ("tune.run set up", "first trial started", "trials ended")
    rows = []
    for imports_s, each in outcomes:
        moments = [each["marks_s"][name] for name in marks]
        seconds = [imports_s, each["wall_s"], each["training_s"], *moments]
        rows.append([f"{value:.1f}" for value in seconds])
    print()
    header = ("two imports", "sweep", "training", "set up at", "first trial at", "trials ended at")
    print_table(header, rows)
    ratio = ratio_of(ratios)
    print(f"\nwall without training, over two imports of TensorFlow at once: {ratio}")
    print_summary("start_up", {"start_up_over_imports": ratio.median}, _TARGETS)


if __name__ == "__main__":
    main()
