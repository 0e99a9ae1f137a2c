"""Run the tests in rings; none is lost, and each retry is reported.

Rings are named as arguments, all by default: ``fast`` is what `make test` runs; ``slow`` and
``alone`` are the rest. Other arguments go to pytest: ``--no-skips`` lets a skipped test fail, as a
submission must pass them.

Some tests start clusters, kill nodes and wait for the effects; on a busy machine one of them
can be late. Up to three failures are run once more, alone; what fails twice is broken. Each
retry is printed and kept in build/retries.txt.
"""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

TOGETHER = ["--numprocesses", "3", "--dist", "loadfile"]
TOGETHER += ["--no-loadscope-reorder", "--max-worker-restart", "0"]
HANGS = ["-o", "faulthandler_timeout=1260", "-o", "faulthandler_exit_on_timeout=true"]
"""A test that hangs in C++, where its time limit does not end it, ends its process and is told."""
RINGS = {
    "fast": [*TOGETHER, *HANGS, "-m", "not slow and not alone and not long and not gpu"],
    "slow": [*TOGETHER, *HANGS, "-m", "(slow or gp) and not alone and not long and not gpu"],
    "alone": [*HANGS, "-m", "alone"],
}
CHOSEN = [name for name in sys.argv[1:] if name in RINGS] or list(RINGS)
OPTIONS = [argument for argument in sys.argv[1:] if argument not in RINGS]
MAX_RETRIES = 3
BUILD = Path("build")


def run_ring(name: str, arguments: list[str]) -> list[str]:
    """Run a part of the tests; return those that failed.

    Raises:
        SystemExit: pytest came to no end, or lost tests.
    """
    report = BUILD / f"tests-{name}.json"
    report.unlink(missing_ok=True)
    began = time.monotonic()
    code = subprocess.run(
        [sys.executable, "-m", "pytest", *OPTIONS, *arguments],
        env={**os.environ, "TUNE_TF_TEST_REPORT": str(report)},
        check=False,
    ).returncode
    print(f"== {name}: {(time.monotonic() - began) / 60:.1f} minutes, status {code}", flush=True)
    if code not in (0, 1):
        sys.exit(f"the tests that run {name} came to no end: status {code} of pytest's")
    outcome = json.loads(report.read_text())
    by_file: Counter[str] = Counter()
    for test, seconds in outcome["seconds"].items():
        by_file[test.partition("::")[0]] += round(seconds)
    print("seconds of the slowest files:", *by_file.most_common(40), sep="\n")
    if outcome["skipped"] and "--no-skips" in OPTIONS:
        sys.exit(f"skipped tests: {len(outcome['skipped'])}; install what they need")
    if (code == 1) != bool(outcome["failed"]):
        sys.exit(f"pytest's status is {code}, and {len(outcome['failed'])} tests failed")
    return list(outcome["failed"])


def main() -> None:
    """Run the rings, and what failed once more."""
    BUILD.mkdir(exist_ok=True)
    failed = [test for name in CHOSEN for test in run_ring(name, RINGS[name])]
    if not failed:
        return
    print("== failed:", *failed, sep="\n")
    if len(failed) > MAX_RETRIES:
        sys.exit(f"{len(failed)} tests failed")
    print("== once more", flush=True)
    broken = run_ring("once more", failed)
    lines = [
        f"{test}: {'failed' if test in broken else 'passed'} when run again" for test in failed
    ]
    with Path(BUILD, "retries.txt").open("a") as file:
        file.writelines(f"{line}\n" for line in lines)
    print("== retries:", *lines, sep="\n")
    if broken:
        sys.exit(f"{len(broken)} tests failed twice")


if __name__ == "__main__":
    main()
