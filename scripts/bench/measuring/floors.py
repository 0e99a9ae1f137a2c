"""Quick check of six ratios against their floors.

    python scripts/bench/measuring/floors.py [--only-measure]

Each is of one of the benchmarks, run with less of everything; the benchmark's own description says
what is compared. A floor is well below what a quiet machine gives: what falls below it was made
slower, or the machine was busy. Run it again, then look at the benchmark itself. The floors are
those of CPUs; with ``--only-measure``, as on a GPU, no value and no failed benchmark is an error.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

from summary import Target, print_table

BENCHMARKS = Path(__file__).parents[1]

FLOORS = {
    "an epoch, against fit": ("epoch_loop.py --num-rounds 2", "mlp_b32/fit", Target(8)),
    "two replicas, against fit": ("strategies.py --quick", "mlp_b32_x2/fit", Target(5)),
    "a warm trial, against fit": (
        "turnaround.py --num-trials 40 --num-fit-trials 15 --skip-recycling",
        "fit_over_warm_first_epoch",
        Target(8),
    ),
    "a sweep, against hand-tuned Ray Tune": (
        "sweep_wall.py --against hand_tuned_ray_tune",
        "hand_tuned_ray_tune",
        Target(3),
    ),
    "a sweep with tracking, against one without": (
        "tracking.py --num-results 8 --num-rounds 2 --num-trials 12 --max-t 9 --short-max-t 9"
        " --size 6 5 10 --report 40 9",
        "sweep_on_over_off",
        Target(1.15, "at most"),
    ),
    "the driver a trial, against plain Ray Tune": (
        "driver.py --num-trials 200",
        "overhead_ours_over_plain",
        Target(1.1, "at most"),
    ),
}


def measure(command: str, name: str) -> float:
    """Return a ratio of a benchmark; NaN if it fails or lacks it, as replicas on a single GPU."""
    file, *arguments = command.split()
    done = subprocess.run(
        [sys.executable, BENCHMARKS / file, *arguments],
        check=False,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"TF_FORCE_GPU_ALLOW_GROWTH": "true"},  # two processes share a GPU
    )
    if done.returncode:
        return math.nan
    return json.loads(done.stdout.splitlines()[-1])["ratios"].get(name, math.nan)


def main() -> int:
    """Measure; return 1 if a ratio misses its floor."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only-measure", action="store_true", help="without floors")
    only_measure = parser.parse_args().only_measure
    rows, failed = [], False
    for what, (words, name, target) in FLOORS.items():
        began = time.monotonic()
        value = measure(words, name)
        failed = failed or not target.is_met(value)
        text = "not measured" if math.isnan(value) else f"{value:.3g}"
        state = "met" if target.is_met(value) else "NOT MET"
        rows.append((what, text, *(() if only_measure else (str(target), state))))
        print(f"{what}: {text} ({time.monotonic() - began:.0f} s)", flush=True)
    print_table(("ratio", "measured", *(() if only_measure else ("floor", ""))), rows)
    return int(failed and not only_measure)


if __name__ == "__main__":
    sys.exit(main())
