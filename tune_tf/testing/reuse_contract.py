"""What every workload keeps: a trial's numbers do not depend on the trials before it.

A process keeps traced programs and trains later trials of the same structure with them. A trial in
such a process has to be, bit for bit, the trial of a fresh process::

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
from tune_tf.training.core.loop import GraphLoop
from tune_tf.training.core.program import Program
from tune_tf.training.core.replicas import Replicas
from tune_tf.training.core.seeds import epoch_order, seed_everything
from tune_tf.training.core.variable_names import variable_names
from tune_tf.training.devices import Devices
from tune_tf.training.input.device_rows import place_rows
from tune_tf.workload import Config, Data, Workload

Result = TypeVar("Result")
SWITCH = "TUNE_TF_REUSE_CHECK"

FIT_TOLERANCE = 1e-6
"""By how much a trial may differ from ``keras.Model.fit``, relative to values above 1."""


@dataclass(frozen=True)
class ContractRun:
    """What one trial gave.

    Args:
        history: Metrics by name, one mapping an epoch.
        values: Final values of the model's and then of the optimizer's variables.
        names: Their paths.
        num_model: How many of them are the model's.
    """

    history: list[dict[str, Any]]
    values: "list[np.ndarray[Any, Any]]"
    names: list[str]
    num_model: int

    @property
    def bits(self) -> tuple[Any, ...]:
        """A form that is equal only where every bit is."""
        history = [sorted((k, np.asarray(v).tobytes()) for k, v in h.items()) for h in self.history]
        return (history, [(value.shape, value.tobytes()) for value in self.values])

    def distance(self, other: "ContractRun") -> float:
        """Return the largest difference, relative to values above 1; infinity for other metrics.

        Slots that only one run has are left out: ``fit`` makes none for what a callback froze.
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
        """Values by whether they are the optimizer's, path, and how often that was there before."""
        seen = [(i >= self.num_model, path) for i, path in enumerate(self.names)]
        keys = [(*key, seen[:i].count(key)) for i, key in enumerate(seen)]
        return dict(zip(keys, self.values, strict=True))


@dataclass
class Reuse:
    """What became of some configs of a workload, one after the other in one process.

    Args:
        name: What was varied.
        labels: The configs, in words.
        programs: Number of the program that served each of them.
        errors: Descriptions of what is wrong; none where reuse is exact.
        refused: Configs that fail in a fresh process as well, with the error.
        num_distinct: Configs that train otherwise than the first.
        unvaried: Arguments for which no other value works.
    """

    name: str
    labels: list[str]
    programs: list[int] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    num_distinct: int = 0
    unvaried: list[str] = field(default_factory=list)

    @property
    def num_pairs(self) -> int:
        """Pairs of one config after another."""
        return max(0, len(self.labels) - 1)

    @property
    def sharing(self) -> list[list[str]]:
        """Configs by the program that serves several of them."""
        groups: dict[int, list[str]] = {}
        for label, program in zip(self.labels, self.programs, strict=True):
            groups.setdefault(program, []).append(label)
        return [group for group in groups.values() if len(group) > 1]


def assert_reuse_is_exact(
    workload: Workload,
    configs: Sequence[Config],
    *,
    seed: int = 1,
    epochs: int = 2,
    replicas: Replicas | None = None,
    by_fit: bool = True,
) -> Reuse:
    """Assert that trials of a workload are the same after others as in a fresh process.

    Args:
        workload: What is trained; its rows should be few.
        configs: Trials, run one after the other in one process; the first one twice more at last.
        seed: Of all trials but the last.
        epochs: Length of a trial.
        replicas: What trains; one CPU by default.
        by_fit: Whether ``keras.Model.fit`` has to give the same; False where it trains by other
            rules, as with a rule of the workload's own for the order of rows.

    Returns:
        What was found, among it which configs share a program.

    Raises:
        AssertionError: Some trial depends on those before it, or differs from ``fit``.
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
) -> Reuse:
    """Return where trials after others differ from those of a fresh process and from ``fit``.

    Args:
        workload: What is trained.
        configs: As for :func:`assert_reuse_is_exact`, as all that follows.
        labels: The configs in words.
        name: What is varied.
        seed: Of all trials.
        epochs: Length of a trial.
        replicas: What trains.
        by_fit: Whether to compare with ``fit``.
        not_by_fit: Labels of configs that are not.
        shared_only: Train only configs that share a program: the others are traced anew, as in a
            fresh process. Much faster, as most values change the graph.
    """
    on = replicas or Replicas(Devices(("CPU:0",)))
    found = Reuse(name or type(workload).__name__, list(labels or map(repr, configs)))
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
    if trained:  # and once more with other weights and draws
        order.append(len(configs))
        trials[len(configs)] = (configs[trained[0]], seed + 1)
        fresh[len(configs)] = _apart(lambda: attempt([trials[len(configs)]]))[0]
    with mock.patch.dict(os.environ, {SWITCH: "raise"}):  # what a check finds is an error, too
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


def write_table(found: Iterable[Reuse]) -> str:
    """Return as text which values share programs and which are traced anew."""
    rows = sorted(found, key=lambda reuse: reuse.name)
    pairs = sum(reuse.num_pairs for reuse in rows)
    num_distinct = sum(reuse.num_distinct for reuse in rows)
    lines = [
        f"{len(rows)} subjects, {pairs} pairs, {num_distinct} of them with an effect, "
        f"{sum(len(reuse.errors) for reuse in rows)} errors",
        "",
        "subject | values | programs | shared by",
    ]
    for reuse in rows:
        shared = "; ".join(" = ".join(group) for group in reuse.sharing) or "none"
        lines.append(f"{reuse.name} | {len(reuse.labels)} | {len(set(reuse.programs))} | {shared}")
        lines += [f"    ERROR {error}" for error in reuse.errors]
        lines += [f"    refused {label}: {error}" for label, error in reuse.refused.items()]
        if reuse.unvaried:
            lines.append(f"    not varied: {', '.join(reuse.unvaried)}")
    return "\n".join(lines) + "\n"


class BuiltWorkload(Workload):
    """A workload of a function that builds its model, and of its data.

    Args:
        build: From a config to a compiled model.
        data: Its data.
        batch_size: Rows of a batch, unless the config has a ``batch_size``.
        callbacks: From a config to Keras callbacks.
    """

    def __init__(
        self,
        build: Callable[[Config], keras.Model],
        data: Data,
        *,
        batch_size: int = 8,
        callbacks: Callable[[Config], Sequence[Any]] = lambda config: (),
    ) -> None:
        self._build = build
        self._data = data
        self._batch_size = batch_size
        self._make_callbacks = callbacks

    def load_data(self, config: Config) -> Data:
        """Return the data."""
        return self._data

    def build_model(self, config: Config) -> keras.Model:
        """Return a compiled model."""
        return self._build(config)

    def callbacks(self, config: Config) -> Sequence[Any]:
        """Return Keras callbacks."""
        return self._make_callbacks(config)

    def global_batch_size(self, config: Config) -> int:
        """Return the rows of a batch."""
        return int(config.get("batch_size", self._batch_size))


def _judge(
    found: Reuse, label: str, run: Any, truth: ContractRun, tolerance: float | None = None
) -> None:
    """Note a fault if a run is not another one: within a tolerance, or in every bit."""
    if not isinstance(run, ContractRun):
        found.errors.append(f"{found.name}: {label} fails: {run!r}"[:600])
        return
    off = run.distance(truth)
    if (run.bits != truth.bits) if tolerance is None else not off <= tolerance:
        found.errors.append(f"{found.name}: {label} is {off:.2g} off")


def _attempt(
    workload: Workload, trials: Sequence[tuple[Config, int]], epochs: int, replicas: Replicas
) -> list[Any]:
    """Run trials in one loop; return what each gave, or its error."""
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
        except Exception as error:  # noqa: BLE001  it is part of what is compared
            runs.append(error)
    return runs


def _programs(
    workload: Workload, configs: Sequence[Config], seed: int, replicas: Replicas
) -> list[Any]:
    """Return the number of the program that would serve each config, or its error; trace none."""
    served: list[Program] = []

    class Recorded(Program):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            served.append(self)

        def take_over(self, *args: Any, **kwargs: Any) -> Any:
            served.append(self)
            return super().take_over(*args, **kwargs)

    class RecordedLoop(GraphLoop):
        program_class = Recorded

    loop = RecordedLoop(workload, replicas)
    kept: list[Program] = []
    numbers: list[Any] = []
    for config in configs:
        try:
            loop.start(
                dict(config), place_rows(rows_of(workload.load_data(config)), replicas), seed
            )
            loop.finish()
        except Exception as error:  # noqa: BLE001  it is part of what is compared
            numbers.append(error)
            continue
        if served[-1] not in kept:
            kept.append(served[-1])
        numbers.append(kept.index(served[-1]))
    return numbers


def _fit(workload: Workload, config: Config, seed: int, epochs: int) -> Any:
    """Run a trial by ``keras.Model.fit``; return what it gave, or its error."""
    import tensorflow as tf

    rows = rows_of(workload.load_data(config))
    size = workload.global_batch_size(config)
    seed_everything(seed)
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

    # At the end of an epoch, because at that of a trial fit puts averages in the weights' place.
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
    except Exception as error:  # noqa: BLE001  it is part of what is compared
        return error
    history = [{name: _plain(values[i]) for name, values in logs.items()} for i in range(epochs)]
    names = [name.path for name in variable_names(model)]
    return ContractRun(history, final, names, len(model.variables))


def _plain(value: Any) -> Any:
    """Return a metric of ``fit``, which leaves one of a type that Python has not as a tensor."""
    return value.numpy() if hasattr(value, "numpy") else value


def _apart(act: Callable[[], Result]) -> Result:
    """Run in a new thread, in which Keras counts names and draws as in a new process."""
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
