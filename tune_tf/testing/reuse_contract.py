"""Contract test of workloads: reusing a process does not change a trial's results.

A process trains later trials of the same structure with the traced programs of earlier ones. The
results must equal those of a fresh process bit for bit::

    from tune_tf.testing.reuse_contract import assert_reuse_is_exact

    def test_my_workload():
        assert_reuse_is_exact(MyWorkload(), [{"delta": 0.5}, {"delta": 2.0}])
"""

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np

from tune_tf.data import rows_of
from tune_tf.trainables.trial_process import PickledWorkload
from tune_tf.training.callbacks import plain_value
from tune_tf.training.core.checkpoint import variable_names
from tune_tf.training.core.loop import GraphLoop
from tune_tf.training.core.replicas import Replicas
from tune_tf.training.core.seeds import epoch_order, seed_python_and_numpy
from tune_tf.training.devices import Devices
from tune_tf.training.input.device_rows import place_rows
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
    """

    history: list[dict[str, Any]]
    values: dict[tuple[bool, str, int], "np.ndarray[Any, Any]"]

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


@dataclass
class ReuseComparison:
    """Comparison of configs trained one after the other in one process with fresh processes.

    Args:
        errors: Descriptions of the differences; empty if reuse is exact.
        refused: Errors by label, of configs that fail in a fresh process too.
        num_distinct: Number of configs whose results differ from those of the first.
    """

    errors: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    num_distinct: int = 0

    def check(
        self, label: str, run: Any, expected: ContractRun, tolerance: float | None = None
    ) -> None:
        """Record an error if a run differs by more than a tolerance; if None, in any bit."""
        if not isinstance(run, ContractRun):
            self.errors.append(f"{label} fails: {run!r}"[:600])
            return
        distance = run.distance(expected)
        is_same = run.bits == expected.bits if tolerance is None else distance <= tolerance
        if not is_same:
            self.errors.append(f"{label} is {distance:.2g} off")


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
        configs: Configs, trained one after the other in one process; the first is repeated twice
            at the end, the last time with another seed.
        replicas: Devices to train on; one CPU by default.
        by_fit: Whether to compare with ``keras.Model.fit``; False if the workload trains
            differently, for example with its own order of rows.

    Raises:
        AssertionError: A trial depends on earlier ones, differs from ``fit``, or fails.
    """
    by_label = {f"config {number} {config!r}": config for number, config in enumerate(configs)}
    comparison = compare_runs(workload, by_label, replicas=replicas, by_fit=by_fit)
    assert not comparison.errors, "\n".join(comparison.errors)
    assert not comparison.refused, f"configs that cannot be trained: {comparison.refused}"


def compare_runs(
    workload: Workload,
    configs: Mapping[str, Config],
    *,
    replicas: Replicas | None = None,
    by_fit: bool = True,
    not_by_fit: Collection[str] = (),
) -> ReuseComparison:
    """Compare trials in a reused process with those of a fresh process and with ``fit``.

    As :func:`assert_reuse_is_exact`, with configs by label; ``not_by_fit`` lists the labels not to
    compare with ``fit``.
    """
    comparison = ReuseComparison()
    attempt = partial(_attempt, workload, replicas=replicas or Replicas(Devices(("CPU:0",))))
    trials = {label: (config, SEED) for label, config in configs.items()}
    fresh = {label: run_apart(partial(attempt, [trial]))[0] for label, trial in trials.items()}
    order = [label for label, run in fresh.items() if isinstance(run, ContractRun)]
    comparison.refused = {label: repr(fresh[label]) for label in configs if label not in order}
    if order:  # repeat the first with the same and with another seed
        first = order[0]
        comparison.num_distinct = sum(fresh[label].bits != fresh[first].bits for label in order)
        again = f"{first} with another seed"
        trials[again] = (configs[first], SEED + 1)
        fresh[again] = run_apart(lambda: attempt([trials[again]]))[0]
        order += [first, again]
    reused = run_apart(lambda: attempt([trials[label] for label in order]))
    for label, previous, run in zip(order, ["nothing", *order], reused, strict=False):
        comparison.check(f"{label} after {previous}", run, fresh[label])
    for label in [label for label in configs if by_fit and label not in not_by_fit]:
        run = run_apart(partial(_fit, workload, configs[label]))
        if isinstance(fresh[label], ContractRun):
            comparison.check(f"{label} by fit", run, fresh[label], FIT_TOLERANCE)
        elif isinstance(run, ContractRun):
            comparison.errors.append(f"fit trains {label}: {fresh[label]!r}"[:600])
    return comparison


def _attempt(
    workload: Workload, trials: Sequence[tuple[Config, int]], replicas: Replicas
) -> list[Any]:
    """Run trials in one loop; return the results or the error of each."""
    runs: list[Any] = []
    loop = GraphLoop(replicas)
    pickled = PickledWorkload.of(workload)
    for config, seed in trials:
        try:
            workload = pickled.load("the test")
            rows = place_rows(rows_of(workload.load_data(config)), replicas)
            loop.start(workload, dict(config), rows, seed)
            history = [loop.epoch() for _ in range(_EPOCHS)]
            state = loop.state()
            values = [*state.model, *state.optimizer]
            runs.append(ContractRun.of(history, values, state.names, len(state.model)))
            loop.finish()
        except Exception as error:  # noqa: BLE001  errors are compared too
            runs.append(error)
    return runs


def _fit(workload: Workload, config: Config) -> Any:
    """Train a trial with ``keras.Model.fit``; return its results or its error."""
    import tensorflow as tf

    rows = rows_of(workload.load_data(config))
    size = workload.global_batch_size(config)
    seed_python_and_numpy(SEED)
    model = workload.build_model(config)
    if type(workload).train_step is not Workload.train_step:
        model.train_step = lambda batch: workload.train_step(model, batch)
    signature = tf.nest.map_structure(
        lambda a: tf.TensorSpec((None, *a.shape[1:]), tf.as_dtype(a.dtype)), rows.train
    )

    def batches() -> Iterable[Any]:
        for epoch in range(_EPOCHS):
            order: Any = np.arange(rows.num_train)
            if workload.shuffle(config):
                order = epoch_order(SEED, epoch, rows.num_train)
            for first in range(0, rows.num_train, size):
                batch = order[first : first + size]
                yield tf.nest.map_structure(lambda a, batch=batch: a[batch], rows.train)

    values: list[Any] = []

    def read_values(epoch: int, logs: Any) -> None:
        values[:] = [v.numpy() for v in (*model.variables, *model.optimizer.variables)]

    # On each epoch's end: at the end of training, fit replaces the weights with their averages.
    last = keras.callbacks.LambdaCallback(on_epoch_end=read_values)
    try:
        logs = model.fit(
            tf.data.Dataset.from_generator(batches, output_signature=signature),
            epochs=_EPOCHS,
            steps_per_epoch=-(-rows.num_train // size),
            validation_data=rows.validation,
            validation_batch_size=size,
            callbacks=[*workload.callbacks(config), last],
            shuffle=False,
            verbose=0,
        ).history
    except Exception as error:  # noqa: BLE001  errors are compared too
        return error
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
