"""Every benchmark runs, and its last line tells a program what it measured."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(1800)]

BENCHMARKS = sorted(Path(__file__).parents[1].glob("scripts/bench/*.py"))
MEASURING = Path(__file__).parents[1] / "scripts" / "bench" / "measuring"
QUICK_LEAVES_OUT = {"epoch_loop": "cnn_", "strategies": ("cnn_", "mlp_b256_")}
WRONG = {"rounds_wrong", "missing_points"}  # no figures that a busy machine changes


@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.stem)
def test_a_benchmark_measures_all_that_it_has_targets_for(path, tmp_path):
    done = subprocess.run(
        [sys.executable, path, "--quick"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["benchmark"] == path.stem
    left_out = QUICK_LEAVES_OUT.get(path.stem, ())
    assert [name for name in told["unmeasured"] if not name.startswith(left_out)] == []
    assert told["ratios"]
    assert all(math.isfinite(value) for value in told["ratios"].values())
    assert WRONG.isdisjoint(told["missed"])


@pytest.mark.parametrize(("options", "code"), [([], 1), (["--only-measure"], 0)])
def test_only_measuring_is_no_matter_of_floors(tmp_path, monkeypatch, capsys, options, code):
    monkeypatch.syspath_prepend(str(MEASURING))
    import floors

    (tmp_path / "slow.py").write_text("""print('{"ratios": {"fit": 2.5}}')""")
    (tmp_path / "broken.py").write_text("raise SystemExit(3)")
    target = floors.Target(8)
    commands = {"slow": "slow.py", "one GPU": "slow.py --quick", "broken": "broken.py"}
    names = {"slow": "fit", "one GPU": "x2/fit", "broken": "fit"}
    table = {what: (words, names[what], target) for what, words in commands.items()}
    monkeypatch.setattr(floors, "BENCHMARKS", tmp_path)
    monkeypatch.setattr(floors, "FLOORS", table)
    monkeypatch.setattr(sys, "argv", ["floors.py", *options])
    assert floors.main() == code
    printed = capsys.readouterr().out
    assert "slow: 2.5 (" in printed
    assert printed.count(": not measured (") == 2
    assert ("NOT MET" in printed) == (code == 1)
