"""Quick check of six ratios against their floors.

    python scripts/bench/measuring/floors.py

Each is of one of the benchmarks, run with less of everything; the benchmark's own description says
what is compared. A floor is well below what a quiet machine gives: what falls below it was made
slower, or the machine was busy. Run it again, then look at the benchmark itself.
"""

import json
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


def main() -> int:
    """Measure; return 1 if a ratio misses its floor."""
    rows, failed = [], False
    for what, (words, name, target) in FLOORS.items():
        began = time.monotonic()
        file, *arguments = words.split()
        done = subprocess.run(
            [sys.executable, BENCHMARKS / file, *arguments],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        value = json.loads(done.stdout.splitlines()[-1])["ratios"][name]
        failed = failed or not target.is_met(value)
        state = "met" if target.is_met(value) else "NOT MET"
        rows.append((what, f"{value:.3g}", str(target), state))
        print(f"{what}: {value:.3g} ({time.monotonic() - began:.0f} s)", flush=True)
    print_table(("ratio", "measured", "floor", ""), rows)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
