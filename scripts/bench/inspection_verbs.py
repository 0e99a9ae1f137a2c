"""Duration of the inspection verbs and the report on a sweep of five thousand trials.

A real sweep of a few trials is run; its folder is multiplied to as many trials as are asked for:
each trial's folder is copied with what Tune and this package have written in it, the event log and
Tune's own snapshot grow by as many entries. Then each verb is called as a user calls it, in a
process of its own, and timed from its start to its end.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measuring.summary import Target, print_summary, print_table

from tune_tf import SweepConfig, run_sweep
from tune_tf.events import EVENT_LOG, EventHistory

_ROOT = Path(__file__).parents[2]
_TARGETS = {
    "status_s": Target(1.0, "at most"),
    "trials_s": Target(2.0, "at most"),
    "report_s": Target(10.0, "at most"),
}
_VERBS = {
    "status": ("status", "{sweep}"),
    "list": ("list",),
    "trials": ("trials", "{sweep}", "--sort", "val_accuracy", "--limit", "20"),
    "show": ("show", "{sweep}", "1"),
    "best": ("best", "{sweep}"),
    "report": ("report", "{sweep}"),
}


def run_one(storage_path: Path) -> Path:
    """Run a sweep of four trials; return its folder."""
    config = SweepConfig.from_yaml(
        _ROOT / "search_spaces" / "digits_mlp.yaml",
        ["budget.num_samples=4", f"storage_path={storage_path}", "mlflow=null"],
    )
    return run_sweep(config).path


def multiply(folder: Path, num_trials: int) -> None:
    """Copy a sweep's trials until its folder holds a given number."""
    sources = list(EventHistory.read(folder).trials.values())
    lines = (folder / EVENT_LOG).read_text().splitlines()
    lines_of_trial = {
        page.trial_id: [line for line in lines if page.trial_id in line] for page in sources
    }
    over = lines.pop()
    snapshot = max(folder.glob("experiment_state-*.json"))
    state = json.loads(snapshot.read_text())
    entries = {
        json.loads(trial)["trial_id"]: (trial, about) for trial, about in state["trial_data"]
    }
    for number in range(len(sources), num_trials):
        source, trial_id = sources[number % len(sources)], f"{number:08x}"
        target = folder / f"trial_{number:05d}"
        shutil.copytree(folder / f"trial_{source.number:05d}", target)
        results = target / "result.json"
        results.write_text(results.read_text().replace(source.trial_id, trial_id))
        for line in lines_of_trial[source.trial_id]:
            event = json.loads(line) | {"trial_id": trial_id, "number": number}
            lines.append(json.dumps(event))
        state["trial_data"].append(
            [text.replace(source.trial_id, trial_id) for text in entries[source.trial_id]]
        )
    (folder / EVENT_LOG).write_text("\n".join([*lines, over]) + "\n")
    snapshot.write_text(json.dumps(state))


def timed(arguments: tuple[str, ...], folder: Path) -> tuple[float, str]:
    """Return the seconds that a verb takes in a new process, and its output."""
    words = [word.format(sweep=folder) for word in arguments]
    command = [sys.executable, str(_ROOT / "scripts" / "sweep.py"), *words]
    begun = time.perf_counter()
    done = subprocess.run(
        [*command, "--storage-path", str(folder.parent)], capture_output=True, text=True, check=True
    )
    return time.perf_counter() - begun, done.stdout


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="few trials, one round")
    options = parser.parse_args()
    num_trials, rounds = (20, 1) if options.quick else (options.trials, options.rounds)
    with tempfile.TemporaryDirectory() as storage_path:
        folder = run_one(Path(storage_path))
        multiply(folder, num_trials)
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        seconds: dict[str, list[float]] = {verb: [] for verb in _VERBS}
        for _ in range(rounds):
            for verb, arguments in _VERBS.items():
                taken, out = timed(arguments, folder)
                seconds[verb].append(taken)
                if verb == "status" and f"{num_trials}/4 trials" not in out:
                    raise RuntimeError(f"status does not tell of all trials:\n{out}")
    medians = {f"{verb}_s": statistics.median(taken) for verb, taken in seconds.items()}
    rows = [
        (verb, f"{medians[f'{verb}_s']:.2f}", f"{min(taken):.2f}", f"{max(taken):.2f}")
        for verb, taken in seconds.items()
    ]
    print_table(("verb", "median s", "least", "most"), rows)
    notes = {"num_trials": num_trials, "folder_megabytes": size / 1e6}
    print_summary("inspection_verbs", medians, _TARGETS, **notes)


if __name__ == "__main__":
    main()
