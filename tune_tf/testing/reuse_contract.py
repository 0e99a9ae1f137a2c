"""Contract test of workloads: reusing a process does not change a trial's results.

A process trains later trials of the same structure with the traced programs of earlier ones. The
results must equal those of a fresh process bit for bit::

    from tune_tf.testing.reuse_contract import assert_reuse_is_exact

    def test_my_workload():
        assert_reuse_is_exact(MyWorkload(), [{"delta": 0.5}, {"delta": 2.0}])
"""

import os
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
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
from tune_tf.training.callbacks import plain_value
from tune_tf.training.checkpoint import Checkpoint, variable_names
from tune_tf.training.devices import Devices
from tune_tf.training.input.device_rows import place_rows
from tune_tf.training.loop import GraphLoop
from tune_tf.training.replicas.replicas import Replicas
from tune_tf.training.seeds import epoch_order, seed_python_and_numpy
from tune_tf.workload import Config, Workload

Result = TypeVar("Result")

FIT_TOLERANCE = 1e-6
"""Largest allowed difference from ``keras.Model.fit``, relative to values above 1."""

SEED = 1
_EPOCHS = 2


@dataclass(frozen=True)
class ContractRun:
    """Results of one trial.

    Args:
        history: Metrics by name, one mapping per epoch.
        values: Final values of the variables by (of the optimizer, path, number of earlier
            variables with this path).
        graph: The graph that trained it; None by ``fit``.
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
    by_fit: bool = True,
) -> None:
    """Assert that trials in a reused process have the results of a fresh process.

    Args:
        workload: The workload; should have few rows.
        configs: Configs, trained one after the other in one process; before all, the first is
            trained with another seed, and at the end once more, from a checkpoint.
        replicas: Devices to train on; one CPU by default.
        by_fit: Whether to compare with ``keras.Model.fit``; False if the workload trains
            differently, for example with its own order of rows.

    Raises:
        AssertionError: A trial depends on earlier ones, differs from ``fit``, or fails.
    """
    by_label = {f"config {number} {config!r}": config for number, config in enumerate(configs)}
    errors = differences(workload, by_label, replicas=replicas, fitted=by_label if by_fit else ())
    assert not errors, "\n".join(errors)


def differences(
    workload: Workload,
    configs: Mapping[str, Config],
    *,
    replicas: Replicas | None = None,
    fitted: Collection[str] = (),
) -> list[str]:
    """Return how trials in a reused process differ from those of a fresh one, and of ``fit``.

    As :func:`assert_reuse_is_exact`, with configs by label; those of the labels ``fitted`` are
    compared with ``fit``.
    """
    replicas = replicas or Replicas(Devices(("CPU:0",)))
    reused = GraphLoop(replicas)
    first = next(iter(configs))
    train(reused, workload, configs[first], SEED + 1)
    previous = "another seed"
    trials = [(label, False) for label in configs] + [(first, True)]
    expected: dict[str, ContractRun] = {}
    errors = []
    for label, restart in trials:
        config = configs[label]
        if label not in expected:
            expected[label] = run_apart(partial(train, GraphLoop(replicas), workload, config))
        run = train(reused, workload, config, restart=restart)
        if run.bits != expected[label].bits:
            how = "restored" if restart else f"after {previous}"
            errors.append(f"{label} {how} is {run.distance(expected[label]):.2g} off")
        previous = label
    for label in fitted:
        run = run_apart(partial(train_by_fit, workload, configs[label]))
        distance = run.distance(expected[label])
        if distance > FIT_TOLERANCE:
            errors.append(f"{label} by fit is {distance:.2g} off")
    return errors


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
    history += [loop.epoch() for _ in range(_EPOCHS - 1)]
    state, program = loop.state(), loop.trial.program
    graph, own_code = program.graph, program.own_code
    loop.finish()
    values = [*state.model, *state.optimizer]
    run = ContractRun.of(history, values, state.names, len(state.model))
    return replace(run, graph=graph, own_code=own_code)


def train_by_fit(workload: Workload, config: Config) -> ContractRun:
    """Train a trial with ``keras.Model.fit``, with a workload of its own."""
    import tensorflow as tf

    workload = PickledWorkload.of(workload).load("the test")
    rows = rows_of(workload.load_data(config))
    size = workload.global_batch_size(config)
    # tf.data takes a list for one tensor.
    parts: Any = rows.train
    parts = tuple(tuple(part) if isinstance(part, list) else part for part in parts)
    seed_python_and_numpy(SEED)
    model = workload.build_model(config)
    if type(workload).train_step is not Workload.train_step:
        model.train_step = lambda batch: workload.train_step(model, batch)
    signature = tf.nest.map_structure(
        lambda a: tf.TensorSpec((None, *a.shape[1:]), tf.as_dtype(a.dtype)), parts
    )

    def batches() -> Iterable[Any]:
        for epoch in range(_EPOCHS):
            order: Any = np.arange(rows.num_train)
            if workload.shuffle(config):
                order = epoch_order(SEED, epoch, rows.num_train)
            for first in range(0, rows.num_train, size):
                batch = order[first : first + size]
                yield tf.nest.map_structure(lambda a, batch=batch: a[batch], parts)

    values: list[Any] = []

    def read_values(epoch: int, logs: Any) -> None:
        values[:] = [v.numpy() for v in (*model.variables, *model.optimizer.variables)]

    seed = keras.callbacks.LambdaCallback(lambda epoch, _: seed_python_and_numpy(SEED + epoch))
    # On each epoch's end: at the end of training, fit replaces the weights with their averages.
    last = keras.callbacks.LambdaCallback(on_epoch_end=read_values)
    logs = model.fit(
        tf.data.Dataset.from_generator(batches, output_signature=signature),
        epochs=_EPOCHS,
        steps_per_epoch=-(-rows.num_train // size),
        validation_data=rows.validation,
        validation_batch_size=size,
        callbacks=[seed, *workload.callbacks(config), last],
        shuffle=False,
        verbose=0,
    ).history
    history = [
        {name: plain_value(metric[epoch]) for name, metric in logs.items()}
        for epoch in range(_EPOCHS)
    ]
    return ContractRun.of(history, values, variable_names(model), len(model.variables))


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
