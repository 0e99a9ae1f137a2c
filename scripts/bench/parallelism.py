"""Duration of an epoch under each parallelism, against one device.

The same digits model, weights, rows and order. Within one process the kinds take turns on logical
parts of the CPU; those of several processes take turns as Trainables on a Ray cluster here. On the
same cores an epoch cannot become faster by being spread: what is measured is what spreading costs.
"""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")

import ray
from baselines.digits_epochs import (
    SEED,
    TOLERANCE,
    OurEpochs,
    Resplit,
    assert_equal_losses,
    epoch_arguments,
    split_cpu,
)
from measuring.interleaved import Contestant, Timings, take_turns
from measuring.summary import print_summary, print_table

from tune_tf import Asynchronous, Hybrid, Mirrored, MultiWorker, Workload, trainable
from tune_tf.data import rows_of
from tune_tf.parallelism import Parallelism
from tune_tf.training.devices import Devices
from tune_tf.training.input.device_rows import place_rows
from tune_tf.training.replicas.replicas import Replicas
from tune_tf.training.stages.stage_builder import StageDevices, stage_loop
from tune_tf.workload import Config
from tune_tf.workloads.digits import DigitsCNN, DigitsMLP

_SGD = {"optimizer": "sgd", "learning_rate": 0.05, "momentum": 0.9}  # Adam blows up rounding
_MODELS: dict[str, tuple[Workload, Config]] = {
    "mlp": (DigitsMLP(), {"width": 128, "num_layers": 2, **_SGD}),
    "cnn": (DigitsCNN(), {"filters": 16, **_SGD, "learning_rate": 0.005}),
}
_BATCH_SIZES = (32, 256)
_GRIDS = {
    "model_parallel_x2": (1, 2, 1),
    "model_parallel_x2_pieces2": (1, 2, 2),
    "hybrid_2x1": (2, 1, 1),
    "hybrid_2x2": (2, 2, 1),
}


class OurStages(OurEpochs):
    """tune_tf's loop over stages, as a trial drives it."""

    def __init__(self, workload: Workload, config: Config, layout: tuple[int, int, int]) -> None:
        num_replicas, num_stages, micro_batches = layout
        devices = Devices(tuple(f"CPU:{i}" for i in range(num_replicas * num_stages)))
        grid = StageDevices(devices, num_stages)
        self.losses = []
        self._loop = stage_loop(grid, Hybrid(num_replicas, num_stages, micro_batches))
        self._loop.start(
            workload, config, place_rows(rows_of(workload.load_data(config)), grid), SEED
        )


def _contestants(model: str, batch_size: int) -> dict[str, Contestant]:
    inner, config = _MODELS[model]
    config = {**config, "batch_size": batch_size}
    workload = Resplit(inner, jit_compile=False)
    found: dict[str, Contestant] = {
        "single": OurEpochs(workload, config, Replicas(Devices(("CPU:0",)))),
        "mirrored_x2": OurEpochs(workload, config, Replicas(Devices(("CPU:0", "CPU:1")))),
    }
    for kind, layout in _GRIDS.items():
        found[kind] = OurStages(workload, config, layout)
    return found


class _OfProcesses:
    """Trial in processes of a Ray cluster.

    Args:
        parallelism: How it is spread.
    """

    def __init__(self, parallelism: Parallelism) -> None:
        workload, config = _MODELS["mlp"]
        needed = parallelism.resources(gpus_in_cluster=False)
        kind = trainable(workload, parallelism, resources=needed, seed=SEED)
        config = {**config, "batch_size": 64}
        self._alone = isinstance(parallelism, Mirrored)
        self._trial = ray.remote(kind).remote(config=config) if self._alone else kind(config=config)
        self.losses: list[tuple[float, float]] = []

    def prepare(self) -> None:
        """Do nothing."""

    def run(self) -> None:
        """Train and validate for one epoch."""
        asked = ray.get(self._trial.train.remote()) if self._alone else self._trial.train()
        self.losses.append((asked["loss"], asked["val_loss"]))

    def stop(self) -> None:
        """End the trial."""
        if self._alone:
            ray.get(self._trial.stop.remote())
        else:
            self._trial.stop()


def _measure_processes(arguments: argparse.Namespace) -> tuple[Timings, dict[str, _OfProcesses]]:
    """Time an epoch of the multi-process kinds, and of one device in a process."""
    ray.init(
        address="local",
        num_cpus=8,  # all are there all the time
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    trials = {
        "single": _OfProcesses(Mirrored()),
        "multi_worker_x2": _OfProcesses(MultiWorker(2)),
        "asynchronous_x2": _OfProcesses(Asynchronous(2)),
    }
    take_turns(trials, num_rounds=arguments.num_checked_epochs)
    exact = {name: trials[name] for name in ("single", "multi_worker_x2")}
    worst = assert_equal_losses("processes", exact, arguments.num_checked_epochs)
    print(f"mlp_b64 in processes: losses equal within {worst:.1e}; measuring ...", flush=True)
    timings = take_turns(
        trials, num_rounds=2 * arguments.num_rounds, num_repeats=arguments.num_repeats
    )
    first, *_, last = trials["asynchronous_x2"].losses
    assert last < first, f"asynchronous training learns nothing: {first} {last}"
    for trial in trials.values():
        trial.stop()
    ray.shutdown()
    return timings, trials


def main() -> None:
    """Run all cases and print their ratios."""
    arguments = epoch_arguments(__doc__, quick="MLP, batch 32, two rounds")
    split_cpu(arguments.num_threads, num_devices=4)
    ratios: dict[str, float] = {}
    rows: list[tuple[str, ...]] = []
    cases = [
        (model, size)
        for model in ("mlp", *(() if arguments.quick else ("cnn",)))
        for size in (_BATCH_SIZES[:1] if arguments.quick else _BATCH_SIZES)
    ]
    for model, size in cases:
        contestants = _contestants(model, size)
        take_turns(contestants, num_rounds=arguments.num_checked_epochs)
        label = f"{model}_b{size}"
        worst = assert_equal_losses(label, contestants, arguments.num_checked_epochs)
        print(f"{label}: losses equal within {worst:.1e}; measuring ...", flush=True)
        timings = take_turns(
            contestants, num_rounds=2 * arguments.num_rounds, num_repeats=arguments.num_repeats
        )
        for kind in [name for name in contestants if name != "single"]:
            over_single = timings.ratio(kind, "single")
            ratios[f"{label}/{kind}/single"] = over_single.median
            rows.append((label, kind, str(over_single)))
    timings, trials = _measure_processes(arguments)
    for kind in [name for name in trials if name != "single"]:
        over_single = timings.ratio(kind, "single")
        ratios[f"mlp_b64/{kind}/single"] = over_single.median
        rows.append(("mlp_b64", kind, str(over_single)))
    print()
    print_table(("case", "kind", "epoch / that of one device"), rows)
    print_summary("parallelism", ratios, {}, tolerance=TOLERANCE)


if __name__ == "__main__":
    main()
