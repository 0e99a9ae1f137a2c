"""Contract test of workloads: reusing a process does not change a trial's results.

A process caches traced programs and trains later trials of the same structure with them. The
results must equal those of a fresh process bit for bit::

    from tune_tf.testing.reuse_contract import assert_reuse_is_exact

    def test_my_workload():
        assert_reuse_is_exact(MyWorkload(), [{"delta": 0.5}, {"delta": 2.0}])
"""

import functools
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar
from unittest import mock

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np

from tune_tf.data import rows_of
from tune_tf.training.core.checkpoint import variable_names
from tune_tf.training.core.loop import GraphLoop
from tune_tf.training.core.program import Program
from tune_tf.training.core.replicas import Replicas
from tune_tf.training.core.seeds import epoch_order, seed_python_and_numpy
from tune_tf.training.devices import Devices
from tune_tf.training.input.device_rows import place_rows
from tune_tf.training.reuse.reuse_check import SWITCH
from tune_tf.workload import Config, Workload

Result = TypeVar("Result")

FIT_TOLERANCE = 1e-6
"""Largest allowed difference from ``keras.Model.fit``, relative to values above 1."""


@dataclass(frozen=True)
class ContractRun:
    """Results of one trial.

    Args:
        history: Metrics by name, one mapping per epoch.
        values: Final values of the model's variables, then of the optimizer's.
        names: Paths of these variables.
        num_model: Number of the model's variables.
    """

    history: list[dict[str, Any]]
    values: "list[np.ndarray[Any, Any]]"
    names: list[str]
    num_model: int

    @property
    def bits(self) -> tuple[Any, ...]:
        """Results in a form that is equal only if every bit is."""
        history = [sorted((k, np.asarray(v).tobytes()) for k, v in h.items()) for h in self.history]
        return (history, [(value.shape, value.tobytes()) for value in self.values])

    def distance(self, other: "ContractRun") -> float:
        """Return the largest difference, relative to values above 1.

        Infinity if the runs differ in metric names or model variables. Optimizer slots of only one
        run are ignored: ``fit`` creates none for variables that a callback froze.
        """
        if [sorted(h) for h in self.history] != [sorted(h) for h in other.history]:
            return float("inf")
        pairs = [
            (one[name], two[name])
            for one, two in zip(self.history, other.history, strict=True)
            for name in one
        ]
        mine, others = self.by_path, other.by_path
        if not all(of_optimizer for of_optimizer, *_ in mine.keys() ^ others.keys()):
            return float("inf")
        pairs += [(mine[name], others[name]) for name in mine if name in others]
        return max((_distance(one, two) for one, two in pairs), default=0.0)

    @property
    def by_path(self) -> dict[tuple[bool, str, int], Any]:
        """Values by (of the optimizer, path, number of earlier variables with this path)."""
        seen = [(i >= self.num_model, path) for i, path in enumerate(self.names)]
        keys = [(*key, seen[:i].count(key)) for i, key in enumerate(seen)]
        return dict(zip(keys, self.values, strict=True))


@dataclass
class ReuseComparison:
    """Comparison of configs trained one after the other in one process with fresh processes.

    Args:
        name: Name of the varied subject.
        labels: Descriptions of the configs.
        programs: Number of the program that trained each config.
        errors: Descriptions of the differences; empty if reuse is exact.
        refused: Errors by label, of configs that fail in a fresh process too.
        num_distinct: Number of configs whose results differ from those of the first.
        unvaried: Arguments for which no other value works.
    """

    name: str
    labels: list[str]
    programs: list[int] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    num_distinct: int = 0
    unvaried: list[str] = field(default_factory=list)


def assert_reuse_is_exact(
    workload: Workload,
    configs: Sequence[Config],
    *,
    seed: int = 1,
    epochs: int = 2,
    replicas: Replicas | None = None,
    by_fit: bool = True,
) -> ReuseComparison:
    """Assert that trials in a reused process have the results of a fresh process.

    Args:
        workload: The workload; should have few rows.
        configs: Configs, trained one after the other in one process; the first is repeated twice
            at the end.
        seed: Seed of all trials but the last.
        epochs: Epochs per trial.
        replicas: Devices to train on; one CPU by default.
        by_fit: Whether to compare with ``keras.Model.fit``; False if the workload trains
            differently, for example with its own order of rows.

    Raises:
        AssertionError: A trial depends on earlier ones, differs from ``fit``, or fails.
    """
    found = compare_runs(
        workload, configs, seed=seed, epochs=epochs, replicas=replicas, by_fit=by_fit
    )
    assert not found.errors, "\n".join(found.errors)
    assert not found.refused, f"configs that cannot be trained: {found.refused}"
    return found


def compare_runs(
    workload: Workload,
    configs: Sequence[Config],
    *,
    labels: Sequence[str] = (),
    name: str = "",
    seed: int = 1,
    epochs: int = 2,
    replicas: Replicas | None = None,
    by_fit: bool = True,
    not_by_fit: Collection[str] = (),
    shared_only: bool = False,
) -> ReuseComparison:
    """Compare trials in a reused process with those of a fresh process and with ``fit``.

    See :func:`assert_reuse_is_exact` for the shared arguments. ``labels`` describe the configs,
    ``name`` is the varied subject, and ``not_by_fit`` lists the labels not to compare with ``fit``.
    With ``shared_only``, only configs that share a program are trained: much faster, since most
    values change the graph. All others are traced anew, as in a fresh process.
    """
    on = replicas or Replicas(Devices(("CPU:0",)))
    found = ReuseComparison(name or type(workload).__name__, list(labels or map(repr, configs)))
    served = _apart(lambda: _programs(workload, configs, seed, on))
    found.programs = [p if isinstance(p, int) else -1 - i for i, p in enumerate(served)]
    chosen = list(range(len(configs)))
    if shared_only:
        errors = [(i, p) for i, p in enumerate(served) if not isinstance(p, int)]
        found.refused = {found.labels[i]: repr(error) for i, error in errors}
        chosen = [i for i in chosen if found.programs.count(found.programs[i]) > 1]
    attempt = functools.partial(_attempt, workload, epochs=epochs, replicas=on)
    trials = {i: (configs[i], seed) for i in chosen}
    fresh = {i: _apart(functools.partial(attempt, [trial]))[0] for i, trial in trials.items()}
    trained = [i for i in chosen if isinstance(fresh[i], ContractRun)]
    found.refused |= {found.labels[i]: repr(fresh[i]) for i in chosen if i not in trained}
    order = [*trained, *trained[:1]]
    if trained:  # repeat the first with another seed
        order.append(len(configs))
        trials[len(configs)] = (configs[trained[0]], seed + 1)
        fresh[len(configs)] = _apart(lambda: attempt([trials[len(configs)]]))[0]
    with mock.patch.dict(os.environ, {SWITCH: "raise"}):  # a failed check raises
        warm = _apart(lambda: attempt([trials[i] for i in order]))
    labels = [*found.labels, f"{found.labels[trained[0]]} with another seed" if trained else ""]
    for position, (i, run) in enumerate(zip(order, warm, strict=True)):
        before = labels[order[position - 1]] if position else "nothing"
        _judge(found, f"{labels[i]} after {before}", run, fresh[i])
    if trained:
        found.num_distinct = sum(fresh[i].bits != fresh[trained[0]].bits for i in trained)
    for i in [i for i in chosen if by_fit and found.labels[i] not in not_by_fit]:
        run = _apart(functools.partial(_fit, workload, configs[i], seed, epochs))
        if i in trained:
            _judge(found, f"{found.labels[i]} by fit", run, fresh[i], FIT_TOLERANCE)
        elif isinstance(run, ContractRun):
            found.errors.append(f"{found.name}: fit trains {found.labels[i]}: {fresh[i]!r}"[:600])
    return found


def _judge(
    found: ReuseComparison, label: str, run: Any, truth: ContractRun, tolerance: float | None = None
) -> None:
    """Record an error if a run differs from the truth by more than a tolerance, or in any bit."""
    if not isinstance(run, ContractRun):
        found.errors.append(f"{found.name}: {label} fails: {run!r}"[:600])
        return
    off = run.distance(truth)
    if (run.bits != truth.bits) if tolerance is None else not off <= tolerance:
        found.errors.append(f"{found.name}: {label} is {off:.2g} off")


def _attempt(
    workload: Workload, trials: Sequence[tuple[Config, int]], epochs: int, replicas: Replicas
) -> list[Any]:
    """Run trials in one loop; return the results or the error of each."""
    runs: list[Any] = []
    loop = GraphLoop(workload, replicas)
    for config, seed in trials:
        try:
            rows = place_rows(rows_of(workload.load_data(config)), replicas)
            loop.start(dict(config), rows, seed)
            history = [loop.epoch() for _ in range(epochs)]
            state = loop.state()
            values, names = [*state.model, *state.optimizer], [name.path for name in state.names]
            runs.append(ContractRun(history, values, names, len(state.model)))
            loop.finish()
        except Exception as error:  # noqa: BLE001  errors are compared too
            runs.append(error)
    return runs


def _programs(
    workload: Workload, configs: Sequence[Config], seed: int, replicas: Replicas
) -> list[Any]:
    """Return the number of each config's program, or its error, without tracing."""
    with mock.patch.dict(os.environ, {SWITCH: "off"}):  # the check would trace
        loop = GraphLoop(workload, replicas)
    kept: list[Program] = []
    numbers: list[Any] = []
    for config in configs:
        try:
            loop.start(
                dict(config), place_rows(rows_of(workload.load_data(config)), replicas), seed
            )
            program = loop.trial.program
            loop.finish()
        except Exception as error:  # noqa: BLE001  errors are compared too
            numbers.append(error)
            continue
        if program not in kept:
            kept.append(program)
        numbers.append(kept.index(program))
    return numbers


def _fit(workload: Workload, config: Config, seed: int, epochs: int) -> Any:
    """Train a trial with ``keras.Model.fit``; return its results or its error."""
    import tensorflow as tf

    rows = rows_of(workload.load_data(config))
    size = workload.global_batch_size(config)
    seed_python_and_numpy(seed)
    model = workload.build_model(config)
    if type(workload).train_step is not Workload.train_step:
        model.train_step = lambda batch: workload.train_step(model, batch)
    signature = tf.nest.map_structure(
        lambda a: tf.TensorSpec((None, *a.shape[1:]), tf.as_dtype(a.dtype)), rows.train
    )

    def batches() -> Iterable[Any]:
        for epoch in range(epochs):
            order: Any = np.arange(rows.num_train)
            if workload.shuffle(config):
                order = epoch_order(seed, epoch, rows.num_train)
            for first in range(0, rows.num_train, size):
                chosen = order[first : first + size]
                yield tf.nest.map_structure(lambda a, chosen=chosen: a[chosen], rows.train)

    final: list[Any] = []

    def keep(epoch: int, logs: Any) -> None:
        final[:] = [v.numpy() for v in (*model.variables, *model.optimizer.variables)]

    # On each epoch's end: at the end of training, fit replaces the weights with their averages.
    last = keras.callbacks.LambdaCallback(on_epoch_end=keep)
    try:
        logs = model.fit(
            tf.data.Dataset.from_generator(batches, output_signature=signature),
            epochs=epochs,
            steps_per_epoch=-(-rows.num_train // size),
            validation_data=rows.validation,
            validation_batch_size=size,
            callbacks=[*workload.callbacks(config), last],
            shuffle=False,
            verbose=0,
        ).history
    except Exception as error:  # noqa: BLE001  errors are compared too
        return error
    history = [{name: _plain(values[i]) for name, values in logs.items()} for i in range(epochs)]
    names = [name.path for name in variable_names(model)]
    return ContractRun(history, final, names, len(model.variables))


def _plain(value: Any) -> Any:
    """Convert a metric of ``fit``, which keeps types that Python lacks as tensors."""
    return value.numpy() if hasattr(value, "numpy") else value


def _apart(act: Callable[[], Result]) -> Result:
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
        off = np.abs(a - b) / np.maximum(1.0, np.abs(b))
    off = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.nan_to_num(off, nan=np.inf))
    return float(off.max(initial=0.0))
