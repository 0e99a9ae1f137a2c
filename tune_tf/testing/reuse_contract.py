"""Contract test of workloads: reusing a process does not change a trial's results.

A process trains later trials of the same structure with the traced programs of earlier ones. The
results must equal those of a fresh process bit for bit::

    from tune_tf.testing.reuse_contract import assert_reuse_is_exact

    def test_my_workload():
        assert_reuse_is_exact(MyWorkload(), [{"delta": 0.5}, {"delta": 2.0}])
"""

import os
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
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
        values: Final values of the variables: of the model, then of the optimizer.
        paths: Their paths, which need not be unique.
        num_of_model: Number of those of the model.
        graph: The graph that trained it.
        own_code: Code of the user's for which the graph was traced anew; empty if it may be shared.
    """

    history: list[dict[str, Any]]
    values: Sequence["np.ndarray[Any, Any]"]
    paths: Sequence[str]
    num_of_model: int
    graph: Any = None
    own_code: str = ""

    @property
    def bits(self) -> tuple[Any, ...]:
        """Results in a form that is equal only if every bit is."""
        history = [sorted((k, np.asarray(v).tobytes()) for k, v in h.items()) for h in self.history]
        return (history, [(value.shape, value.tobytes()) for value in self.values])


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
            numbers = f"{run.history} instead of {expected[number].history}, or its weights differ"
            errors.append(f"config {number} {config!r} {how}: {numbers}")
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
    run = ContractRun(
        history,
        [*state.model, *state.optimizer],
        [name.path for name in state.names],
        len(state.model),
        program.graph,
        program.own_code,
    )
    loop.finish()
    return run


def run_apart(act: Callable[[], Result]) -> Result:
    """Run in a new thread, where Keras counts names and random draws as in a new process."""
    policy = keras.config.dtype_policy()

    def run() -> Result:
        keras.config.set_dtype_policy(policy)
        return act()

    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(run).result()
