"""Simulates sweeps that are killed and resumed: so many seeds, or one of them.

    python tests/driver_simulation/simulate.py --seeds 200
    python tests/driver_simulation/simulate.py --seed 17 --trace

What is real: the driver from ``run_sweep`` and ``resume_sweep`` on (record, resume, budgets, ends,
checkpoints that are removed), Optuna, MLflow's view of the record with its thread, Tune's own
controller and actor manager, and the files.

What is virtual: trials (they train nothing), Ray's cluster, clocks, threads, the MLflow server, and
what is slow and of no matter here (the report's pictures, YAML, the list of packages).

What is not covered: losses of power (whatever was handed to the system is there after a kill), full
disks, several processes on one folder, the best model, checkpoints in an object store, edited or
extended sweeps, elastic trials, and runs that trials' own processes write to.

Everything follows from the seed. Between two writes to the sweep's folder or to MLflow the process
may die, or another thread run; a write may be torn by it.
"""

import argparse
import gc
import os
import sys
import time
from collections.abc import Iterator, Sequence

if __name__ == "__main__" and os.environ.get("PYTHONHASHSEED") != "0":
    # The order of sets is to repeat, too.
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "PYTHONHASHSEED": "0"})

from turn_threads import CLOCK

CLOCK.install()  # before anything keeps a reference to Python's clocks

from old_bugs import OLD_BUGS, put_back  # noqa: E402
from sweep_life import LIVES_A_CONFIG, Life, quiet, simulate  # noqa: E402 - see above

_CLEAN_EVERY = 20


def lives_of(
    seeds: Sequence[int], *, twice: bool = False, reproducible: bool = False
) -> Iterator[Life]:
    """Yield what became of each seed.

    Args:
        seeds: The seeds.
        twice: Whether to see that all repeats.
        reproducible: Whether sweeps are reproducible: lives of the same one must agree.
    """
    gc.freeze()  # what was imported stays
    gc.disable()
    digests: dict[int, str] = {}
    for count, seed in enumerate(seeds):
        life = simulate(seed, reproducible=reproducible)
        first = digests.setdefault(seed // LIVES_A_CONFIG, life.digest)
        if reproducible and life.error is None and life.digest != first:
            life.error = AssertionError(f"not reproducible: {life.digest} and before {first}")
        if twice and simulate(seed).trace != life.trace:
            life.error = AssertionError("the seed does not repeat")
        yield life
        if count % _CLEAN_EVERY == 0:
            gc.collect()


def summary(lives: Sequence[Life], cpu_s: float) -> str:
    """Return what the lives covered."""
    crashes = [where for life in lives for where in life.crashes]
    points = {where for life in lives for where in life.points}
    schedules = {life.schedule for life in lives}
    return (
        f"{len(lives)} seeds in {cpu_s:.1f} CPU-seconds ({len(lives) / cpu_s:.1f} a second): "
        f"{sum(life.num_sessions for life in lives)} sessions, {len(crashes)} crashes at "
        f"{len(set(crashes))} of {len(points)} points, {len(schedules)} schedules, "
        f"{sum(life.error is not None for life in lives)} failed"
    )


def _tell(life: Life, asked: argparse.Namespace, *, one: bool) -> None:
    if one and asked.trace:
        print("\n".join(life.trace))
    if life.error is not None:
        told = life.told()
        print(told if one else f"seed {life.seed}: {told.strip().splitlines()[-1][:300]}")
        more = " --reproducible" * asked.reproducible
        print(
            f"    replay: {sys.executable} {sys.argv[0]} --seed {life.seed} --trace{more}",
            flush=True,
        )


def _all_found() -> bool:
    """Return whether each old fault is found by the seed that is known to find it; tell how."""
    found = True
    for name, (*_, seed) in OLD_BUGS.items():
        with put_back(name):
            life = simulate(seed)
        told = life.told().strip().splitlines()[-1] if life.error is not None else "NOT FOUND"
        print(f"{name}: seed {seed}: {told[:200]}")
        found = found and life.error is not None
    return found


def main() -> int:
    """Simulate; return 1 if a seed failed."""
    parser = argparse.ArgumentParser(description="Sweeps that are killed and resumed.")
    parser.add_argument("--seeds", type=int, default=200, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first one")
    parser.add_argument("--seed", type=int, help="one seed, and all about it")
    parser.add_argument("--reproducible", action="store_true", help="reproducible sweeps")
    parser.add_argument("--trace", action="store_true", help="print each point of that seed")
    parser.add_argument("--log", action="store_true", help="print what is logged")
    parser.add_argument("--twice", action="store_true", help="see that each seed repeats")
    parser.add_argument("--stop", action="store_true", help="end with the first that fails")
    parser.add_argument("--bug", choices=sorted(OLD_BUGS), help="an old fault to put back")
    parser.add_argument("--bugs", action="store_true", help="put each old fault back in turn")
    asked = parser.parse_args()
    if not asked.log:
        quiet()
    if asked.bugs:
        return int(not _all_found())
    one = asked.seed is not None
    seeds = [asked.seed] if one else range(asked.first, asked.first + asked.seeds)
    begun_s = time.process_time()
    lives: list[Life] = []
    with put_back(asked.bug):
        for life in lives_of(seeds, twice=asked.twice, reproducible=asked.reproducible):
            lives.append(life)
            _tell(life, asked, one=one)
            if asked.stop and life.error is not None:
                break
    print(summary(lives, time.process_time() - begun_s))
    return int(any(life.error is not None for life in lives))


if __name__ == "__main__":
    sys.exit(main())
