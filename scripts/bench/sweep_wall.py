"""Wall time of a sweep: tune_tf against documented and hand-tuned Ray Tune, and KerasTuner.

Every contestant is a script of its own in ``contestants/``, run in a fresh process with fresh
folders. tune_tf runs before and after each other one, and the mean of the two counts, because the
others run long enough for a busy machine to change. The clock starts after ``ray.init`` and stops
when the results are at hand; imports, the start of actors and tracking are inside.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "contestants"))

from measuring.interleaved import ratio_of
from measuring.summary import Target, print_summary, print_table
from outcome import SweepOutcome

_CONTESTANTS = Path(__file__).parent / "contestants"
_TARGETS = {
    "documented_ray_tune": Target(10),
    "hand_tuned_ray_tune": Target(4),
    "keras_tuner": Target(1.8),
}
_TIMEOUT_S = 1800  # of one contestant, on a very busy machine
# Of 359 validation rows, the best models of two sweeps may differ by seven by chance.
_ACCURACY_TOLERANCE = 0.02


@dataclass(frozen=True)
class _Entry:
    """Contestant and its job.

    Args:
        script: File name in ``contestants``, without the ending.
        num_samples: Trials.
        max_epochs: Epochs of a trial at most.
        variant: What else the script can be asked for.
    """

    script: str
    num_samples: int
    max_epochs: int
    variant: str = ""


@dataclass(frozen=True)
class _Match:
    """Comparison of a contestant with tune_tf on the same job.

    Args:
        theirs: The contestant.
        ours: tune_tf.
    """

    theirs: _Entry
    ours: _Entry


def _matches(*, quick: bool) -> dict[str, _Match]:
    short = (4, 3) if quick else (32, 9)
    long = (4, 3) if quick else (64, 27)
    max_epochs = 3 if quick else 9
    # Hyperband plans its trials by itself; ours gets as many trials as train at least its epochs.
    hyperband = (8, 3) if quick else (32, 9)
    return {
        "documented_ray_tune": _Match(
            _Entry("documented_ray_tune", *short), _Entry("tune_tf_sweep", *short)
        ),
        "hand_tuned_ray_tune": _Match(
            _Entry("hand_tuned_ray_tune", *long), _Entry("tune_tf_sweep", *long)
        ),
        "hand_tuned_pipeline": _Match(
            _Entry("hand_tuned_ray_tune", *long, variant="pipeline"),
            _Entry("tune_tf_sweep", *long),
        ),
        "keras_tuner": _Match(
            _Entry("keras_tuner_hyperband", 0, max_epochs), _Entry("tune_tf_sweep", *hyperband)
        ),
    }


def _run(entry: _Entry, seed: int) -> SweepOutcome:
    """Run a contestant in a fresh process.

    Raises:
        RuntimeError: It failed; ends with what it wrote.
    """
    print(f"  {_named(entry)} at load {os.getloadavg()[0]:.1f} ...", end=" ", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.run(
            [
                sys.executable,
                str(_CONTESTANTS / f"{entry.script}.py"),
                f"--num-samples={entry.num_samples}",
                f"--max-epochs={entry.max_epochs}",
                f"--folder={folder}",
                f"--seed={seed}",
                f"--variant={entry.variant}",
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_S,
            cwd=folder,
            env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2"},
        )
    if process.returncode:
        raise RuntimeError(f"{_named(entry)} failed:\n{process.stderr[-4000:]}")
    outcome = SweepOutcome.parse(process.stdout)
    print(
        f"{outcome.wall_s:.1f} s, {outcome.num_trials} trials, {outcome.num_epochs} epochs, "
        f"{outcome.num_processes} processes, best {outcome.best_val_accuracy:.4f}",
        flush=True,
    )
    return outcome


def _named(entry: _Entry) -> str:
    variant = f" ({entry.variant})" if entry.variant else ""
    return f"{entry.script}{variant} {entry.num_samples or '?'}x{entry.max_epochs}"


def _assert_same_job() -> None:
    """Check that the contestants' code makes the rows and the model of our workload."""
    code = (
        "import numpy, keras, digits_mlp\n"
        "from tune_tf.workloads.digits import DigitsMLP\n"
        "config = dict(width=64, learning_rate=1e-3, weight_decay=1e-4, optimizer='adamw')\n"
        "data = DigitsMLP().load_data({})\n"
        "for ours, theirs in zip((data.train, data.validation), digits_mlp.load_rows()):\n"
        "    assert all(numpy.array_equal(a, b) for a, b in zip(ours, theirs))\n"
        "def job(model):\n"
        "    layers = [each.get_config() for each in model.layers if each.name != 'input_layer']\n"
        "    return layers, model.get_compile_config()\n"
        "jobs, models = [], []\n"
        "for build in (DigitsMLP().build_model, digits_mlp.build_model):\n"
        "    keras.backend.clear_session()\n"
        "    models.append(build(config))\n"
        "    jobs.append(job(models[-1]))\n"
        "assert jobs[0] == jobs[1], jobs\n"
        "models[1].set_weights(models[0].get_weights())\n"
        "scores = [model.predict_on_batch(data.train[0]) for model in models]\n"
        "assert numpy.array_equal(*scores), scores\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", code],
        cwd=_CONTESTANTS,
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, f"the contestants' job is not ours:\n{process.stderr[-4000:]}"


def _print_breakdown(outcomes: Sequence[SweepOutcome]) -> None:
    """Print tune_tf's wall time between marks."""
    rows = []
    for outcome in outcomes:
        before, job = 0.0, f"{outcome.num_trials} trials, {outcome.num_epochs} epochs"
        for name, moment_s in sorted(outcome.marks_s.items(), key=lambda item: item[1]):
            rows.append((job, f"until: {name}", f"{moment_s - before:.2f}"))
            before = moment_s
        rows.append((job, "until: results at hand", f"{outcome.wall_s - before:.2f}"))
    print("\nWhere tune_tf's time goes:")
    print_table(("job", "phase", "seconds"), rows)


def _arguments() -> argparse.Namespace:
    names = list(_matches(quick=True))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smoke run: tiny sweeps")
    parser.add_argument("--rounds", type=int, default=1, help="turns of everyone")
    parser.add_argument("--breakdown", action="store_true", help="print where our time goes")
    parser.add_argument("--against", nargs="+", choices=names, default=names, help="whom")
    return parser.parse_args()


def main() -> None:
    """Run all contestants and print the ratios."""
    arguments = _arguments()
    matches = {
        name: match
        for name, match in _matches(quick=arguments.quick).items()
        if name in arguments.against
    }
    print("checking that all contestants have the same job ...", flush=True)
    _assert_same_job()
    walls: dict[str, list[float]] = {name: [] for name in matches}
    epochs_each: dict[str, list[float]] = {name: [] for name in matches}
    outcomes: dict[_Entry, list[SweepOutcome]] = defaultdict(list)
    for number in range(arguments.rounds):
        print(f"round {number + 1} of {arguments.rounds}:", flush=True)
        for name, match in matches.items():
            before, theirs, after = (
                _run(entry, seed=number) for entry in (match.ours, match.theirs, match.ours)
            )
            ours = (before, after)
            walls[name].append(theirs.wall_s / statistics.mean(each.wall_s for each in ours))
            epochs_each[name].append(
                theirs.epoch_s / statistics.mean(each.epoch_s for each in ours)
            )
            outcomes[match.theirs].append(theirs)
            outcomes[match.ours] += ours
    values: dict[str, float] = {}
    best: dict[str, float] = {}
    rows = []
    for name, match in matches.items():
        wall, epoch = ratio_of(walls[name]), ratio_of(epochs_each[name])
        values |= {name: wall.median, f"{name}/per_epoch": epoch.median}
        for side, entry in (("ours", match.ours), ("theirs", match.theirs)):
            best[f"{name}/{side}"] = statistics.median(
                each.best_val_accuracy for each in outcomes[entry]
            )
        found, to_find = best[f"{name}/ours"], best[f"{name}/theirs"]
        rows.append((name, str(wall), str(epoch), f"{found:.4f}", f"{to_find:.4f}"))
        if not arguments.quick:
            assert found >= to_find - _ACCURACY_TOLERANCE, f"{name}: {found}, not {to_find}"
    print()
    print_table(
        ("against", "their wall over ours", "wall per epoch", "our best", "their best"), rows
    )
    epochs = {_named(entry): [each.num_epochs for each in of] for entry, of in outcomes.items()}
    if arguments.breakdown:
        _print_breakdown([o for match in matches.values() for o in outcomes.pop(match.ours, [])])
    print_summary("sweep_wall", values, _TARGETS, best_val_accuracy=best, num_epochs=epochs)


if __name__ == "__main__":
    main()
