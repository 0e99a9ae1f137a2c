"""Duration of an epoch on several replicas: tune_tf against ``model.fit`` and a hand-written loop.

Under the same strategy, from the same weights, on the same rows in the same order and batches, by
turns in one process; all must arrive at the same losses. Replicas stand on the GPUs, 1 to all of
them, or on parts of the CPU where there are none.
"""

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
from baselines.expert_replicas import ExpertReplicas
from baselines.fit_epochs import FitEpochs
from measuring.interleaved import Contestant, take_turns
from measuring.summary import Target, print_summary, print_table

from tune_tf import Workload
from tune_tf.training.devices import Devices
from tune_tf.training.replicas.replicas import Replicas
from tune_tf.workload import Config
from tune_tf.workloads.digits import DigitsCNN, DigitsMLP

_NEVER_SLOWER = 0.95
_MODELS: dict[str, tuple[Workload, Config]] = {
    "mlp": (DigitsMLP(), {"width": 128}),
    "cnn": (DigitsCNN(), {"filters": 16}),
}
_BATCH_SIZES = (32, 256)
_TARGETS = {
    f"{model}_b{size}_x{replicas}/{slower}": Target(_NEVER_SLOWER)
    for model in _MODELS
    for size in _BATCH_SIZES
    for replicas in (1, 2)
    for slower in ("fit", "expert")
} | {"mlp_b32_x1/fit": Target(8), "mlp_b32_x2/fit": Target(8)}


def _strategy(devices: Devices) -> tf.distribute.Strategy:
    """Return the strategy of a user; None for one replica, which is fastest."""
    if len(devices.names) == 1:
        return tf.distribute.get_strategy()
    reduction = tf.distribute.ReductionToOneDevice() if devices.on_cpu else None
    return tf.distribute.MirroredStrategy(list(devices.names), cross_device_ops=reduction)


def _contestants(model: str, batch_size: int, devices: Devices) -> dict[str, Contestant]:
    inner, config = _MODELS[model]
    config = {**config, "batch_size": batch_size}
    workload = Resplit(inner, jit_compile=False)
    data, strategy = workload.load_data(config), _strategy(devices)
    batches = {"order": order, "batch_size": batch_size}
    expert = built(workload, config, strategy)
    return {
        "tune_tf": OurEpochs(workload, config, Replicas(devices)),
        "fit": FitEpochs(built(workload, config, strategy), data.train, data.validation, **batches),
        "expert": ExpertReplicas(expert, strategy, data.train, data.validation, **batches),
    }


def main() -> None:
    """Run all cases and print their ratios."""
    arguments = epoch_arguments(__doc__, quick="MLP, batch 32, two rounds")
    split_cpu(arguments.num_threads)
    num_gpus = len(tf.config.list_physical_devices("GPU"))
    kind, most = ("GPU", num_gpus) if num_gpus else ("CPU", 2)
    if not num_gpus:
        print("no GPUs here: replicas are parts of the CPU, so images/s cannot grow with them")
    ratios: dict[str, float] = {}
    images_per_s: dict[str, float] = {}
    rows: list[tuple[str, ...]] = []
    cases = [
        (model, size, num)
        for model in ("mlp", *(() if arguments.quick else ("cnn",)))
        for size in (_BATCH_SIZES[:1] if arguments.quick else _BATCH_SIZES)
        for num in range(1, most + 1)
        if size % num == 0  # fit needs it
    ]
    for model, size, num in cases:
        label = f"{model}_b{size}_x{num}"
        devices = Devices(tuple(f"{kind}:{i}" for i in range(num)))
        contestants = _contestants(model, size, devices)
        take_turns(contestants, num_rounds=arguments.num_checked_epochs)
        worst = assert_equal_losses(label, contestants, arguments.num_checked_epochs)
        print(f"{label}: losses equal within {worst:.1e}; measuring ...", flush=True)
        slow = take_turns(contestants, num_rounds=arguments.num_rounds)
        quick = {name: contestants[name] for name in ("tune_tf", "expert")}
        fast = take_turns(
            quick, num_rounds=4 * arguments.num_rounds, num_repeats=arguments.num_repeats
        )
        images_per_s[label] = round(NUM_TRAIN / fast.median_s("tune_tf"))
        for slower, timings in (("fit", slow), ("expert", fast)):
            ratio = timings.ratio(slower, "tune_tf")
            ratios[f"{label}/{slower}"] = ratio.median
            rows.append((label, f"{slower} / tune_tf", str(ratio), f"{images_per_s[label]}"))
    print()
    print_table(("case", "time over time", "median [quartiles]", "our images/s"), rows)
    print_summary(
        "strategies",
        ratios,
        _TARGETS,
        tolerance=TOLERANCE,
        num_gpus=num_gpus,
        images_per_s=images_per_s,
    )


if __name__ == "__main__":
    main()
