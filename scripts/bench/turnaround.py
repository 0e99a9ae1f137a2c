"""Time, traced programs and memory from one trial to the next in a process.

First, trials of three alternating structures go through one reused tune_tf trainable, and through
a fresh model with ``fit(epochs=1)``, each in a process of its own, trial by trial in turns. Then a
small sweep shows that an actor which has traced enough is replaced by a fresh one.
"""

import argparse
import math
import os
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf
from baselines.fit_trials import FitTrials, TrialTimes, resident_bytes
from measuring.interleaved import ratio_of
from measuring.summary import Target, print_summary, print_table
from measuring.work_process import Work, work_process

import tune_tf
from tune_tf.workloads.digits import DigitsMLP

_WIDTHS = (32, 64, 128)
_NUM_EPOCHS = 3
_NUM_SLOTS = 2
_TARGETS = {
    "warm_first_epoch_starts_ms": Target(50, "at most"),
    "growth_mb_per_warm_trial": Target(0.1, "at most"),
    "num_programs": Target(len(_WIDTHS), "at most"),
}


def _config(number: int) -> dict[str, Any]:
    """Return the config of a trial: three structures in turn, with varying scalars."""
    return {
        "width": _WIDTHS[number % len(_WIDTHS)],
        "optimizer": "adamw",
        "learning_rate": 10 ** (-3 + 0.01 * (number % 50)),
        "weight_decay": 10 ** (-5 + 0.02 * (number % 50)),
        "dropout": 0.1 + 0.005 * (number % 50),
        "batch_size": 32,
    }


class _ReusedTrainable:
    """Trainable driven by hand, as Tune drives a reused actor."""

    def __init__(self, num_epochs: int) -> None:
        num_gpus = min(1, len(tf.config.list_physical_devices("GPU")))  # `fit` trains on it
        resources = tune_tf.TrialResources(gpus=num_gpus)
        self._class = tune_tf.trainable(DigitsMLP, seed=1, resources=resources)
        self._trainable: Any = None
        self._num_epochs = num_epochs

    def __call__(self, config: Mapping[str, Any]) -> TrialTimes:
        """Run one trial."""
        started = time.perf_counter()
        if self._trainable is None:
            self._trainable = self._class(config=dict(config))
        else:
            assert self._trainable.reset(dict(config)), "the trainable refused to be reused"
        first_start = time.perf_counter()
        first_end = 0.0
        for _ in range(self._num_epochs):
            result = self._trainable.train()
            first_end = first_end or time.perf_counter()
        return TrialTimes(
            first_start_s=first_start - started,
            first_end_s=first_end - started,
            all_s=time.perf_counter() - started,
            resident_bytes=resident_bytes(),
            loss=result["loss"],
            num_programs=self._trainable._processes._loop.num_programs,  # noqa: SLF001
        )


def _reused() -> Work:
    return _ReusedTrainable(_NUM_EPOCHS)


def _fresh() -> Work:
    return FitTrials(DigitsMLP(), _NUM_EPOCHS)


def _growth_mb_per_trial(trials: Sequence[TrialTimes]) -> float:
    """Return the slope of the resident memory over the second half of the trials."""
    half = [trial.resident_bytes / 2**20 for trial in trials[len(trials) // 2 :]]
    return statistics.linear_regression(range(len(half)), half).slope


def _median_ms(values: Sequence[float]) -> float:
    return 1000 * statistics.median(values)


def _measure_turnaround(num_trials: int, num_fit_trials: int) -> dict[str, float]:
    ours: list[TrialTimes] = []
    theirs: list[TrialTimes] = []
    with work_process(_reused) as reused, work_process(_fresh) as fresh:
        for number in range(num_trials):
            ours.append(reused.do(_config(number)))
            if number < num_fit_trials:
                theirs.append(fresh.do(_config(number)))
            if number % 20 == 0:
                print(f"trial {number} of {num_trials} ...", flush=True)
    assert all(math.isfinite(trial.loss) for trial in ours + theirs), "a loss is not finite"
    cold, warm = ours[: len(_WIDTHS)], ours[len(_WIDTHS) :]
    fit = theirs[len(_WIDTHS) :]  # the first ones load what every process loads once
    pairs = list(zip(fit, warm, strict=False))
    rows = [
        (
            name,
            f"{_median_ms([t.first_start_s for t in trials]):.1f}",
            f"{_median_ms([t.first_end_s for t in trials]):.1f}",
            f"{_median_ms([t.all_s for t in trials]):.1f}",
        )
        for name, trials in (
            ("tune_tf, first of its structure", cold),
            ("tune_tf, warm", warm),
            ("fresh model and fit", fit),
        )
    ]
    print()
    print_table(
        ("trial", "first epoch starts, ms", "first epoch ends, ms", f"{_NUM_EPOCHS} epochs, ms"),
        rows,
    )
    values = {
        "fit_over_warm_first_epoch": ratio_of(
            [a.first_end_s / b.first_end_s for a, b in pairs]
        ).median,
        "fit_over_warm_trial": ratio_of([a.all_s / b.all_s for a, b in pairs]).median,
        "warm_first_epoch_starts_ms": _median_ms([trial.first_start_s for trial in warm]),
        "warm_first_epoch_ends_ms": _median_ms([trial.first_end_s for trial in warm]),
        "growth_mb_per_warm_trial": _growth_mb_per_trial(warm),
        "growth_mb_per_fit_trial": _growth_mb_per_trial(fit),
        "num_programs": float(ours[-1].num_programs),
    }
    print()
    print_table(
        ("process", "resident memory growth, MB a trial"),
        [
            ("tune_tf, warm", f"{values['growth_mb_per_warm_trial']:.3f}"),
            ("fresh model and fit", f"{values['growth_mb_per_fit_trial']:.3f}"),
        ],
    )
    return values


def _measure_recycling(num_trials: int, max_programs: int) -> dict[str, float]:
    """Run trials of as many structures, and count their processes."""
    import ray
    from ray import tune

    from tune_tf.trainables.memory import recycling
    from tune_tf.trainables.memory.recycling import ActorRecycler

    class FewPrograms(DigitsMLP):
        def build_model(self, config: Any) -> Any:
            recycling.MAX_PROGRAMS = max_programs
            return super().build_model(config)

    os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"
    os.environ["RAY_AIR_NEW_OUTPUT"] = "0"
    ray.init(num_cpus=_NUM_SLOTS, include_dashboard=False, log_to_driver=False)
    widths = [16 + 4 * number for number in range(num_trials)]
    with tempfile.TemporaryDirectory() as folder:
        analysis = tune.run(
            tune_tf.trainable(FewPrograms, seed=1),
            config={"width": tune.grid_search(widths), "batch_size": 32},
            stop={"training_iteration": 2},
            storage_path=folder,
            reuse_actors=True,
            callbacks=[ActorRecycler()],
            verbose=0,
        )
    ray.shutdown()
    pids = [trial.last_result["pid"] for trial in analysis.trials]
    served = {pid: pids.count(pid) for pid in pids}
    assert max(served.values()) <= max_programs, f"a process was not recycled: {served}"
    assert len(served) >= 2 * _NUM_SLOTS, f"fewer than two processes a slot: {served}"
    print(f"\nrecycling: {num_trials} structures, at most {max_programs} a process: {served}")
    return {
        "recycled_processes": float(len(served)),
        "most_trials_of_a_process": float(max(served.values())),
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smoke run: few trials")
    parser.add_argument("--num-trials", type=int, default=200, help="through the trainable")
    parser.add_argument("--num-fit-trials", type=int, default=60, help="with a fresh model each")
    parser.add_argument("--num-recycled-trials", type=int, default=10, help="of the small sweep")
    parser.add_argument("--skip-recycling", action="store_true", help="start no Ray cluster")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.num_trials, arguments.num_fit_trials = 30, 8
        arguments.num_recycled_trials = 4 * _NUM_SLOTS
    return arguments


def main() -> None:
    """Run both parts and print the summary."""
    arguments = _arguments()
    values = _measure_turnaround(arguments.num_trials, arguments.num_fit_trials)
    if not arguments.skip_recycling:
        values |= _measure_recycling(arguments.num_recycled_trials, max_programs=2)
    print_summary("turnaround", values, _TARGETS)


if __name__ == "__main__":
    main()
