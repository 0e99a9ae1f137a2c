"""Whether a reproducible sweep comes to the same whatever happens to it, and what that costs.

Real sweeps: three files run many times each, with 1, 2 and 4 trials at once, under load that comes
and goes, with kills of the driver and of trials' processes, and resumes; all fingerprints of a file
have to be equal. Real time: the same sweep with and without ``reproducible``, two trials at once,
in turns, as epochs a second, of models of one width. Virtual time: epochs of many more workers
against the order of arrival, where configs differ in cost by up to eight times and durations vary
by 20 %.
"""

import argparse
import heapq
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from measuring.interleaved import ratio_of
from measuring.summary import Target, print_summary, print_table

_SWEEP = """\
name: repeated
workload: tune_tf.workloads.digits:{workload}
objective: {{metric: val_accuracy, mode: max}}
reproducible: {reproducible}
space:
  learning_rate: {{loguniform: [1.0e-4, 1.0e-1]}}
  {width}
  batch_size:    64
seed: 7
epochs: 9
searcher: {{sampler: {sampler}}}
scheduler: {scheduler}
resources: {{cpus: 1}}
max_concurrent_trials: {concurrent}
max_failures: 20
budget: {{num_samples: {num_trials}}}
mlflow: null
"""
_KINDS: dict[str, tuple[str, str, dict[str, int]]] = {
    "tpe_asha": ("tpe", "{name: asha}", {"driver": 2}),
    "pbt": (
        "random",
        "{name: pbt, perturbation_interval: 3, mutations: [learning_rate]}",
        {"driver": 1, "trial": 2},
    ),
    "hyperband": ("tpe", "{name: HyperBandScheduler}", {"driver": 1, "trial": 3}),
}
"""Sampler, scheduler and kills by name of a sweep."""

_WIDTHS = {
    "DigitsMLP": "width: {choice: [32, 64, 128]}",
    "DigitsCNN": "filters: 64",
}
_WORKERS = (1, 2, 4)
_SLOTS_PER_WORKER = 2
_MAX_T = 27
_SCHEDULERS: dict[str, dict[str, Any]] = {
    "fifo": {},
    "asha": {},
    "HyperBandScheduler": {},
    "MedianStoppingRule": {},
}


def _drive(num_workers: int, verb: str, target: str) -> None:
    """Run or resume a sweep on a local cluster of a given size, as a process of its own."""
    import ray

    from tune_tf import SweepConfig, resume_sweep, run_sweep

    ray.init(num_cpus=num_workers, include_dashboard=False, log_to_driver=False)
    if verb == "run":
        run_sweep(SweepConfig.from_yaml(target))
    else:
        resume_sweep(target)


def _write_sweep(
    folder: Path,
    kind: str,
    *,
    num_trials: int,
    workload: str = "DigitsMLP",
    reproducible: bool = True,
) -> Path:
    sampler, scheduler, _ = _KINDS[kind]
    file = folder / "sweep.yaml"
    file.write_text(
        _SWEEP.format(
            workload=workload,
            width=_WIDTHS[workload],
            reproducible=str(reproducible).lower(),
            sampler=sampler,
            scheduler=scheduler,
            num_trials=num_trials,
            concurrent=4 if reproducible else 2,
        )
    )
    return file


def _run_disturbed(kind: str, num_workers: int, num_trials: int, seed: int) -> str:
    """Run a sweep under load and kills; return its fingerprint, or what went wrong."""
    from tune_tf.sweep.reproducibility import make_reproducible_scheduler
    from tune_tf.sweep_folder import SweepFolder
    from tune_tf.testing.chaos import ChaosDrill, Kill

    generator = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = _write_sweep(folder, kind, num_trials=num_trials)
        command = [sys.executable, __file__, "--drive", str(num_workers)]
        drill = ChaosDrill(command, file, folder, seed=seed, timeout_s=300)
        kinds = [each for each, count in _KINDS[kind][2].items() for _ in range(count)]
        generator.shuffle(kinds)
        times = sorted(generator.uniform(0.02, 0.3) for _ in kinds)
        kills = [Kill(*each) for each in zip(kinds, times, strict=True)] if seed else []
        load = _Load(generator) if seed else None
        try:
            drill.run(kills)
        except AssertionError as error:
            return str(error)[-2000:]
        finally:
            if load is not None:
                load.end()
        (path,) = folder.glob("sweeps/*/sweep-info")
        return str(make_reproducible_scheduler(SweepFolder.open(path.parent), 1).fingerprint.digest)


def _run_often(kind: str, num_trials: int, num_runs: int) -> list[str]:
    """Run a sweep often, with other disturbances each time; return and print the fingerprints."""
    found = []
    for run in range(num_runs):
        num_workers = _WORKERS[run % len(_WORKERS)]
        found.append(_run_disturbed(kind, num_workers, num_trials, run))
        print(f"{kind}, run {run}, {num_workers} at once: {found[-1]}", flush=True)
    return found


class _Load:
    """Processes that compute for a while, pause and compute again, at random."""

    def __init__(self, generator: random.Random) -> None:
        code = (
            "import random, time\n"
            f"generator = random.Random({generator.random()})\n"
            "while True:\n"
            "    end = time.monotonic() + generator.uniform(0, 3)\n"
            "    while time.monotonic() < end: pass\n"
            "    time.sleep(generator.uniform(0, 5))\n"
        )
        self._processes = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]

    def end(self) -> None:
        """End them."""
        for process in self._processes:
            process.kill()
            process.wait()


def _epochs_per_s(kind: str, *, num_trials: int, reproducible: bool) -> float:
    """Return the epochs a second from the first result to the last, two trials at once.

    All trials have the same width, as else the sweep with the cheaper trials would win.
    """
    from tune_tf.inspection.reported_results import RESULTS, read_results

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = _write_sweep(
            folder, kind, num_trials=num_trials, workload="DigitsCNN", reproducible=reproducible
        )
        command = [sys.executable, __file__, "--drive", "2", "run", str(file)]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        times = [
            float(result["timestamp"])
            for path in folder.glob(f"sweeps/*/trial_*/{RESULTS}")
            for result in read_results(path)
        ]
        return len(times) / max(max(times) - min(times), 1.0)


def _value(config: Mapping[str, Any], iteration: int) -> float:
    """Return a metric that follows from a config: its learning rate is best at 0.01."""
    distance = abs(math.log10(config["rate"]) + 2)
    return float(1 - distance / 4 - 0.2 * config["bias"] / iteration - 0.3 / iteration)


def _virtual_sweep(name: str, num_slots: int, num_samples: int, seed: int) -> Any:
    from tune_tf import Objective
    from tune_tf.schedulers import scheduler
    from tune_tf.schedulers.logical_sweep import LogicalSweep
    from tune_tf.searchers import OptunaSearcher
    from tune_tf.space import Float, SearchSpace

    space = SearchSpace(
        {"rate": Float(1e-4, 1e-1, log=True), "bias": Float(0, 1), "size": Float(1, 8, log=True)}
    )
    objective = Objective("accuracy", "max")
    decides = scheduler(name, objective, max_t=_MAX_T, **_SCHEDULERS[name])
    searcher = OptunaSearcher(space, objective, "random", seed=seed)
    return LogicalSweep(
        searcher,
        decides,
        num_slots=num_slots,
        num_samples=num_samples,
        space=space,
        seed=seed,
    )


def _seconds(config: Mapping[str, Any], generator: random.Random) -> float:
    return float(config["size"] * math.exp(generator.gauss(0, 0.2)))


def _share_in_order(name: str, num_workers: int, num_samples: int, seed: int) -> float:
    """Return the share of the workers' time that trains, with decisions in logical order."""
    from tune_tf.result_keys import EPOCH_COST
    from tune_tf.schedulers.logical_sweep import Position

    sweep = _virtual_sweep(name, _SLOTS_PER_WORKER * num_workers, num_samples, seed)
    generator = random.Random(seed)
    now_s = busy_s = 0.0
    reached: dict[int, int] = {}
    queue: list[tuple[float, int]] = []
    running: set[int] = set()
    sweep.advance()
    while True:
        ready = []
        for number in set(range(sweep.num_created)) - running:
            assignment = sweep.assignment(number)
            if assignment.outcome is None and reached.get(number, 0) < assignment.limit:
                ready.append((assignment.due, number))
        for _, number in sorted(ready)[: num_workers - len(running)]:
            running.add(number)
            seconds = _seconds(sweep.config(number), generator)
            busy_s += seconds
            heapq.heappush(queue, (now_s + seconds, number))
        if not queue:
            return busy_s / now_s / num_workers
        now_s, number = heapq.heappop(queue)
        running.discard(number)
        reached[number] = reached.get(number, 0) + 1
        config = sweep.config(number)
        metrics = {"accuracy": _value(config, reached[number]), EPOCH_COST: config["size"]}
        sweep.report(Position(number, 0, reached[number]), metrics)
        sweep.advance()


def _share_on_arrival(name: str, num_workers: int, num_samples: int, seed: int) -> float:
    """Return the share of the workers' time that trains, with decisions in order of arrival."""
    sweep = _virtual_sweep(name, num_workers, num_samples, seed)
    generator = random.Random(seed)
    busy_s = 0.0

    def seconds(trial: Any) -> float:
        nonlocal busy_s
        taken = _seconds(trial.config, generator)
        busy_s += taken
        return taken

    sweep.seconds = seconds
    sweep.result = lambda trial, iteration: {"accuracy": _value(trial.config, iteration)}
    sweep.advance()
    return busy_s / sweep.now_s / num_workers


def _virtual_ratios(num_workers: int, num_seeds: int) -> dict[str, float]:
    ratios = {}
    num_samples = (24 if num_workers < 64 else 12) * num_workers
    for name in _SCHEDULERS:
        pairs = [
            (
                _share_in_order(name, num_workers, num_samples, seed),
                _share_on_arrival(name, num_workers, num_samples, seed),
            )
            for seed in range(num_seeds)
        ]
        ratios[name] = float(np.mean([ours / theirs for ours, theirs in pairs]))
    return ratios


def main() -> None:
    """Run all parts; print the fingerprints and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smoke run: two runs a file")
    parser.add_argument("--runs", type=int, default=20, help="runs of each file")
    parser.add_argument("--rounds", type=int, default=5, help="pairs of timed sweeps")
    parser.add_argument("--drive", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--parts", nargs="+", default=["virtual", "time", "runs"], help="which")
    parser.add_argument("--kinds", nargs="+", default=list(_KINDS), choices=list(_KINDS))
    asked = parser.parse_args()
    if asked.drive:
        _drive(int(asked.drive[0]), *asked.drive[1:])
        return
    num_trials, num_workers, num_seeds = 16, (2, 4, 16, 64), 3
    if asked.quick:
        asked.runs, asked.rounds, num_trials, num_workers, num_seeds = 2, 1, 6, (2,), 1
    values: dict[str, float | None] = {}
    targets: dict[str, Target] = {}
    if "virtual" in asked.parts:
        rows = []
        for count in num_workers:
            ratios = _virtual_ratios(count, num_seeds)
            rows.append((str(count), *(f"{ratios[name]:.2f}" for name in _SCHEDULERS)))
            for name, ratio in ratios.items():
                values[f"virtual/{name}/w{count}"] = ratio
                targets[f"virtual/{name}/w{count}"] = Target(0.94)
        print_table(("workers", *_SCHEDULERS), rows)
        print()
    if "time" in asked.parts:
        for kind in asked.kinds:
            pairs = [
                _epochs_per_s(kind, num_trials=4 * num_trials, reproducible=True)
                / _epochs_per_s(kind, num_trials=4 * num_trials, reproducible=False)
                for _ in range(asked.rounds)
            ]
            print(f"{kind}: {', '.join(f'{pair:.2f}' for pair in pairs)}")
            ratio = ratio_of(pairs)
            print(f"{kind}: epochs a second, reproducible against ordinary: {ratio}", flush=True)
            values[f"throughput/{kind}"] = ratio.median
            targets[f"throughput/{kind}"] = Target(0.95)
        print()
    if "runs" in asked.parts:
        for kind in asked.kinds:
            began_s = time.monotonic()
            found = _run_often(kind, num_trials, asked.runs)
            distinct = sorted(set(found))
            took_s = time.monotonic() - began_s
            print(f"{kind}: {asked.runs} runs, {took_s:.0f} s: {', '.join(distinct)}", flush=True)
            values[f"fingerprints/{kind}"] = float(len(distinct))
            targets[f"fingerprints/{kind}"] = Target(1, "at most")
    print_summary("reproducible_sweeps", values, targets, runs=asked.runs)


if __name__ == "__main__":
    main()
