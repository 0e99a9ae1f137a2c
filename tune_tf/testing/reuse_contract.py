"""Contract test of workloads: reusing a process does not change a trial's results.

A process trains later trials of the same structure with the traced programs of earlier ones. The
results must equal those of a fresh process bit for bit::

    from tune_tf.testing.reuse_contract import assert_reuse_is_exact

    def test_my_workload():
        assert_reuse_is_exact(MyWorkload(), [{"delta": 0.5}, {"delta": 2.0}])
"""

import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np

from tune_tf.data import rows_of
from tune_tf.trainables.trial_process import PickledWorkload
from tune_tf.training.checkpoint import Checkpoint
from tune_tf.training.devices import Devices
from tune_tf.training.input.device_rows import place_rows
from tune_tf.training.loop import GraphLoop
from tune_tf.training.replicas.replicas import Replicas
from tune_tf.workload import Config, Workload

Result = TypeVar("Result")

SEED = 1
NUM_EPOCHS = 2


@dataclass(frozen=True)
class ContractRun:
    """Results of one trial.

    Args:
        history: Metrics by name, one mapping per epoch.
        values: Final values of the variables by (of the optimizer, path, number of earlier
            variables with this path).
        graph: The graph that trained it.
        own_code: Code of the user's for which the graph was traced anew; empty if it may be shared.
    """

    history: list[dict[str, Any]]
    values: dict[tuple[bool, str, int], "np.ndarray[Any, Any]"]
    graph: Any = None
    own_code: str = ""

    @classmethod
    def of(
        cls, history: list[dict[str, Any]], values: Sequence[Any], names: Iterable[Any], num: int
    ) -> "ContractRun":
        """Return a run by the values of the ``num`` variables of the model, then the optimizer."""
        paths = [(i >= num, name.path) for i, name in enumerate(names)]
        keys = [(*path, paths[:i].count(path)) for i, path in enumerate(paths)]
        return cls(history, dict(zip(keys, values, strict=True)))

    @property
    def bits(self) -> tuple[Any, ...]:
        """Results in a form that is equal only if every bit is."""
        history = [sorted((k, np.asarray(v).tobytes()) for k, v in h.items()) for h in self.history]
        return (history, [(value.shape, value.tobytes()) for value in self.values.values()])

    def distance(self, other: "ContractRun") -> float:
        """Return the largest difference, relative to values above 1.

        Infinity if the runs differ in metric names or model variables. Optimizer slots of only one
        run are ignored: ``fit`` creates none for variables that a callback froze.
        """
        if [sorted(h) for h in self.history] != [sorted(h) for h in other.history]:
            return float("inf")
        pairs = [
            (metrics[name], other_metrics[name])
            for metrics, other_metrics in zip(self.history, other.history, strict=True)
            for name in metrics
        ]
        if not all(of_optimizer for of_optimizer, *_ in self.values.keys() ^ other.values.keys()):
            return float("inf")
        common = self.values.keys() & other.values.keys()
        pairs += [(self.values[key], other.values[key]) for key in common]
        return max((_distance(one, two) for one, two in pairs), default=0.0)


def assert_reuse_is_exact(
    workload: Workload,
    configs: Sequence[Config],
    *,
    replicas: Replicas | None = None,
) -> None:
    """Assert that trials in a reused process have the results of a fresh process.

    Args:
        workload: The workload; should have few rows.
        configs: Configs, trained one after the other in one process; before all, the first is
            trained with another seed, and at the end once more, from a checkpoint.
        replicas: Devices to train on; one CPU by default.

    Raises:
        AssertionError: A trial depends on earlier ones, or fails.
    """
    replicas = replicas or Replicas(Devices(("CPU:0",)))
    reused = GraphLoop(replicas)
    train(reused, workload, configs[0], SEED + 1)
    previous = "another seed"
    expected: dict[int, ContractRun] = {}
    errors = []
    for number, restart in [*((number, False) for number in range(len(configs))), (0, True)]:
        config = configs[number]
        if not restart:
            expected[number] = run_apart(partial(train, GraphLoop(replicas), workload, config))
        run = train(reused, workload, config, restart=restart)
        if run.bits != expected[number].bits:
            how = "restored" if restart else f"after {previous}"
            distance = run.distance(expected[number])
            errors.append(f"config {number} {config!r} {how} is {distance:.2g} off")
        previous = f"config {number}"
    assert not errors, "\n".join(errors)


def train(
    loop: GraphLoop, workload: Workload, config: Config, seed: int = SEED, *, restart: bool = False
) -> ContractRun:
    """Train a trial in a loop, with a workload of its own.

    Args:
        loop: The loop, which may have trained other trials.
        workload: The workload; the trial has a copy of it.
        config: Config of the trial.
        seed: Seed of the trial.
        restart: Whether to go on from a checkpoint in a trial of its own after the first epoch.
    """
    pickled = PickledWorkload.of(workload)

    def start() -> None:
        workload = pickled.load("the test")
        rows = place_rows(rows_of(workload.load_data(config)), loop.replicas)
        loop.start(workload, dict(config), rows, seed)

    start()
    history = [loop.epoch()]
    if restart:
        with tempfile.TemporaryDirectory() as folder:
            loop.state().write(Path(folder))
            loop.finish()
            start()
            loop.restore(Checkpoint.read(Path(folder)))
    history += [loop.epoch() for _ in range(NUM_EPOCHS - 1)]
    state, program = loop.state(), loop.trial.program
    graph, own_code = program.graph, program.own_code
    loop.finish()
    values = [*state.model, *state.optimizer]
    run = ContractRun.of(history, values, state.names, len(state.model))
    return replace(run, graph=graph, own_code=own_code)


def run_apart(act: Callable[[], Result]) -> Result:
    """Run in a new thread, where Keras counts names and random draws as in a new process."""
    policy = keras.config.dtype_policy()

    def run() -> Result:
        keras.config.set_dtype_policy(policy)
        return act()

    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(run).result()


def _distance(one: Any, other: Any) -> float:
    a, b = np.asarray(one).astype("float64"), np.asarray(other).astype("float64")
    with np.errstate(all="ignore"):
        distance = np.abs(a - b) / np.maximum(1.0, np.abs(b))
    is_same = (a == b) | (np.isnan(a) & np.isnan(b))
    distance = np.where(is_same, 0.0, np.nan_to_num(distance, nan=np.inf))
    return float(distance.max(initial=0.0))
