"""Duration of an epoch: tune_tf's graph call against ``model.fit`` and a hand-written one.

All contestants train the same model from the same weights on the same rows in the same order and
batches, by turns in one process, and must arrive at the same losses.
"""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf
from baselines.digits_epochs import (
    NUM_TRAIN,
    TOLERANCE,
    OurEpochs,
    Resplit,
    assert_equal_losses,
    built,
    epoch_arguments,
    order,
    split_cpu,
)
from baselines.expert_epochs import ExpertEpochs
from baselines.fit_epochs import Arrays, FitEpochs, TunedFitEpochs
from measuring.interleaved import Contestant, Timings, take_turns
from measuring.summary import Target, print_summary, print_table

from tune_tf import Workload
from tune_tf.training.devices import Devices
from tune_tf.training.replicas.replicas import Replicas
from tune_tf.workload import Config
from tune_tf.workloads.digits import DigitsCNN, DigitsMLP

_TARGETS = {
    "mlp_b32/fit": Target(10),
    "mlp_b32/fit_mirrored_x1": Target(10),
    "mlp_b32/fit_mirrored_x2": Target(20),
    "cnn_b32/fit": Target(1.5),
    "cnn_b32/fit_mirrored_x1": Target(1.5),
    "cnn_b32/fit_mirrored_x2": Target(4),
    "mlp_b32/expert": Target(0.9),
    "cnn_b32/expert": Target(0.9),
    "mlp_b32/mirrored_x1_over_no_strategy": Target(1.05, "at most"),
    "cnn_b32/mirrored_x1_over_no_strategy": Target(1.05, "at most"),
}


_DEVICE = "GPU:0" if tf.config.list_physical_devices("GPU") else "CPU:0"  # where `fit` trains


class _Case:
    """Model and batch size, with their contestants."""

    def __init__(self, inner: Workload, config: Config, *, jit_compile: bool) -> None:
        self._config = config
        self._batch_size = int(config["batch_size"])
        self._workload = Resplit(inner, jit_compile=jit_compile)
        self._inner = inner
        data = self._workload.load_data(config)
        self._train: Arrays = data.train
        self._validation: Arrays = data.validation

    def ours(self, num_replicas: int) -> OurEpochs:
        devices = (_DEVICE,) if num_replicas == 1 else ("CPU:0", "CPU:1")
        return OurEpochs(self._workload, self._config, Replicas(Devices(devices)))

    def fit(self, strategy: tf.distribute.Strategy) -> FitEpochs:
        model = built(self._workload, self._config, strategy)
        return FitEpochs(model, self._train, self._validation, **self._batches)

    def tuned_fit(self, strategy: tf.distribute.Strategy) -> TunedFitEpochs:
        workload = Resplit(
            self._inner,
            jit_compile=False,
            steps_per_execution=NUM_TRAIN // self._batch_size,
        )
        model = built(workload, self._config, strategy)
        return TunedFitEpochs(model, self._train, self._validation, **self._batches)

    def expert(self) -> ExpertEpochs:
        model = built(self._workload, self._config, tf.distribute.get_strategy())
        return ExpertEpochs(model, self._train, self._validation, **self._batches)

    @property
    def _batches(self) -> dict[str, object]:
        return {"order": order, "batch_size": self._batch_size}


def _measure(
    label: str, case: _Case, arguments: argparse.Namespace, *, everything: bool
) -> tuple[dict[str, float], list[tuple[str, ...]]]:
    """Return ratios and table rows of a case."""
    contestants: dict[str, Contestant] = {"tune_tf": case.ours(1)}
    default = tf.distribute.get_strategy()
    contestants["fit"] = case.fit(default)
    pairs = [("fit", "tune_tf")]
    if everything:
        one_device = tf.distribute.ReductionToOneDevice
        mirrored_x1 = tf.distribute.MirroredStrategy([_DEVICE], cross_device_ops=one_device())
        mirrored_x2 = tf.distribute.MirroredStrategy(
            ["CPU:0", "CPU:1"], cross_device_ops=one_device()
        )
        contestants |= {
            "expert": case.expert(),
            "tune_tf_mirrored_x1": case.ours(1),
            "tune_tf_mirrored_x2": case.ours(2),
            "fit_tuned": case.tuned_fit(default),
            "fit_mirrored_x1": case.fit(mirrored_x1),
            "fit_mirrored_x2": case.fit(mirrored_x2),
        }
        pairs += [
            ("fit_tuned", "tune_tf"),
            ("fit_mirrored_x1", "tune_tf_mirrored_x1"),
            ("fit_mirrored_x2", "tune_tf_mirrored_x2"),
        ]
    print(f"{label}: tracing and checking losses ...", flush=True)
    take_turns(contestants, num_rounds=arguments.num_checked_epochs)
    worst = assert_equal_losses(label, contestants, arguments.num_checked_epochs)
    print(f"{label}: losses equal within {worst:.1e}; measuring ...", flush=True)
    slow = take_turns(contestants, num_rounds=arguments.num_rounds)
    ratios, rows = {}, []

    def note(name: str, timings: Timings, slower: str, faster: str) -> None:
        ratio = timings.ratio(slower, faster)
        ratios[f"{label}/{name}"] = ratio.median
        rows.append((label, f"{slower} / {faster}", str(ratio)))

    for slower, faster in pairs:
        note(slower, slow, slower, faster)
    if everything:
        quick = {name: contestants[name] for name in ("tune_tf", "expert", "tune_tf_mirrored_x1")}
        fast = take_turns(
            quick,
            num_rounds=4 * arguments.num_rounds,
            num_repeats=arguments.num_repeats,
        )
        note("expert", fast, "expert", "tune_tf")
        note("mirrored_x1_over_no_strategy", fast, "tune_tf_mirrored_x1", "tune_tf")
    return ratios, rows


def main() -> None:
    """Run all cases and print their ratios."""
    arguments = epoch_arguments(__doc__, quick="MLP, two rounds")
    split_cpu(arguments.num_threads)
    mlp, cnn = {"width": 128}, {"filters": 16}
    cases = {
        "mlp_b32": (_Case(DigitsMLP(), mlp | {"batch_size": 32}, jit_compile=False), True),
        "cnn_b32": (_Case(DigitsCNN(), cnn | {"batch_size": 32}, jit_compile=False), True),
        "mlp_b256": (_Case(DigitsMLP(), mlp | {"batch_size": 256}, jit_compile=False), True),
        "cnn_b256": (_Case(DigitsCNN(), cnn | {"batch_size": 256}, jit_compile=False), True),
        "mlp_b32_xla": (_Case(DigitsMLP(), mlp | {"batch_size": 32}, jit_compile=True), False),
        "cnn_b32_xla": (_Case(DigitsCNN(), cnn | {"batch_size": 32}, jit_compile=True), False),
    }
    if arguments.quick:
        cases = {"mlp_b32": cases["mlp_b32"]}
    ratios: dict[str, float] = {}
    rows: list[tuple[str, ...]] = []
    for label, (case, everything) in cases.items():
        measured, more = _measure(label, case, arguments, everything=everything)
        ratios |= measured
        rows += more
    print()
    print_table(("case", "time over time", "median [quartiles]"), rows)
    print_summary("epoch_loop", ratios, _TARGETS, tolerance=TOLERANCE)


if __name__ == "__main__":
    main()
