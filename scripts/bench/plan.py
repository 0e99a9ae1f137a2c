"""Error of the forecast of a sweep.

Forecasts a sweep over the digits and one over a table (scikit-learn's wines, written as CSV), runs
each, and compares. The forecast is made in one process and the sweep runs in another, as a user
does it.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from measuring.summary import Target, print_summary, print_table

_ROOT = Path(__file__).parents[2]
_QUICK = ("budget.num_samples=4", "epochs=3")
_TARGETS = {"memory": Target(0.25, "at most"), "wall": Target(0.4, "at most")}
"""How far a forecast may be from what it was, as a part of that."""


def write_wines(folder: Path) -> Path:
    """Write a table of 178 wines; return the sweep file that searches it."""
    from sklearn.datasets import load_wine

    table = load_wine(as_frame=True).frame.rename(columns={"target": "class"})
    (folder / "data").mkdir()
    table.to_csv(folder / "data" / "wine.csv", index=False)
    path = folder / "tabular.yaml"
    path.write_text((_ROOT / "search_spaces" / "tabular.yaml").read_text())
    return path


def json_of(verb: str, file: Path, settings: list[str], cwd: Path) -> dict[str, Any]:
    """Run a verb and return its JSON output."""
    command = [sys.executable, str(_ROOT / "scripts" / "sweep.py"), verb, str(file), "--json"]
    done = subprocess.run(
        [*command, *(["--set", *settings] if settings else [])],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=True,
    )
    output: dict[str, Any] = json.loads(done.stdout)
    return output


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="few trials, one round")
    options = parser.parse_args()
    rounds = 1 if options.quick else options.rounds
    settings = list(_QUICK) if options.quick else []
    ratios: dict[str, list[float]] = {}
    rows = []
    loads = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = {
            "digits": _ROOT / "search_spaces" / "digits_cnn.yaml",
            "tabular": write_wines(folder),
        }
        for number in range(rounds):
            for sweep, file in files.items():
                loads.append(os.getloadavg()[0])
                json_of("plan", file, settings, folder)
                for what, each in json_of("run", file, settings, folder)["forecast"].items():
                    key = f"{sweep}_{_short(what)}"
                    ratios.setdefault(key, []).append(each["ratio"])
                    rows.append(
                        (
                            f"{number + 1}",
                            sweep,
                            what,
                            *(f"{each[it]:.4g}" for it in ("low", "likely", "high", "actual")),
                            f"{each['ratio']:.2f}",
                        )
                    )
    print_table(("round", "sweep", "", "low", "likely", "high", "actual", "ratio"), rows)
    values: dict[str, float | None] = {
        key: statistics.median(found) for key, found in ratios.items()
    }
    targets = {}
    for sweep in files:
        for what, target in _TARGETS.items():
            name = f"{sweep}_{what}"
            values[f"{name}_off"] = abs(statistics.median(ratios[name]) - 1)
            targets[f"{name}_off"] = target
    print_summary("plan", values, targets, load_averages=[round(load, 2) for load in loads])


def _short(what: str) -> str:
    """Return a short label of a compared number."""
    return {"wall time": "wall", "peak memory of a trial": "memory"}.get(
        what, what.rsplit(maxsplit=1)[-1]
    )


if __name__ == "__main__":
    main()
