"""Every benchmark runs, and its last line tells a program what it measured."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

BENCHMARKS = sorted(Path(__file__).parents[1].glob("scripts/bench/*.py"))


@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.stem)
def test_a_benchmark_measures_all_that_it_has_targets_for(path, tmp_path):
    done = subprocess.run(
        [sys.executable, path, "--quick"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["benchmark"] == path.stem
    assert told["unmeasured"] == []
    assert told["ratios"]
    assert all(math.isfinite(value) for value in told["ratios"].values())
    assert set(told["missed"]) <= set(told["ratios"])
