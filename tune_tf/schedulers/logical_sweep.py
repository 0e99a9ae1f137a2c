"""Sweep in logical time: its decisions follow from its settings and its trials' results alone.

A scheduler and a searcher run as in a sweep with a fixed number of slots, in which an iteration
takes as long as its config says. Real results are filled in whenever they arrive: each waits for
its turn. So neither the number of workers nor their load, failures or restarts change a decision.
"""

import hashlib
import json
import math
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from ray.tune.experiment import Trial
from ray.tune.search import ConcurrencyLimiter, Searcher

from tune_tf.outcome import CONFIG_CHANGED_AT, MLFLOW_RUN_ID, STOP_CAUSE, STOP_REASON, Outcome
from tune_tf.result_keys import BOOKKEEPING, EPOCH_COST, TRAINING_ITERATION, is_machine_metric
from tune_tf.schedulers.gaussian_process import FloatArray, one_thread
from tune_tf.schedulers.outcome_mixin import OutcomeMixin
from tune_tf.schedulers.unit_space import UnitSpace
from tune_tf.space import SearchSpace, flatten
from tune_tf.tune_internals.virtual_controller import (
    VirtualCheckpoint,
    VirtualController,
    VirtualSearch,
)

_MAX_COSTS: Final = 200
_RIDGE: Final = 0.1


@dataclass(frozen=True, order=True)
class Position:
    """Iteration of a trial, from 1.

    Args:
        trial: Number of the trial in order of proposal, from 0.
        segment: How often the trial had begun again in the state of another one, as under ``pbt``.
    """

    trial: int
    segment: int
    iteration: int


@dataclass(frozen=True)
class Assignment:
    """What a trial is to do, as far as it is decided.

    Args:
        segment: Number of the segment that it is in.
        limit: Iteration up to which it may train before the next decision on it.
        due: Logical time of its next result; infinite while it waits.
        outcome: How it ended at ``limit``; None if it has not.
        cause: Cause of the outcome, if there is more to say.
    """

    segment: int
    limit: int
    due: float = math.inf
    outcome: Outcome | None = None
    cause: str | None = None


class EpochCosts:
    """Costs of the epochs of configs, those of a new config by regression on earlier ones.

    Args:
        space: The search space.
    """

    def __init__(self, space: SearchSpace) -> None:
        self._space = UnitSpace(space)
        self._features: list[FloatArray] = []
        self._logarithms: list[float] = []

    def add(self, config: Mapping[str, Any], cost: float) -> None:
        """Add the cost of a flat config, in any unit."""
        if len(self._logarithms) < _MAX_COSTS:
            self._features.append(self._features_of(config))
            self._logarithms.append(math.log(cost))

    def predict(self, config: Mapping[str, Any]) -> float:
        """Return the expected cost of a flat config; 1 before the first one is known.

        Two digits are kept, so that it does not depend on the processor's rounding.
        """
        if not self._logarithms:
            return 1.0
        mean = float(np.mean(self._logarithms))
        features = np.array(self._features)
        centre = features.mean(axis=0)
        features -= centre
        matrix = features.T @ features + _RIDGE * np.eye(features.shape[1])
        weights = np.linalg.solve(matrix, features.T @ (np.array(self._logarithms) - mean))
        value = mean + float((self._features_of(config) - centre) @ weights)
        value = min(max(value, min(self._logarithms)), max(self._logarithms))
        return float(f"{math.exp(value):.2g}")

    def _features_of(self, config: Mapping[str, Any]) -> FloatArray:
        if not self._space:
            return np.zeros(1)
        features: FloatArray = self._space.features(self._space.encode(config)[None])[0]
        return features


class LogicalSweep:
    """Sweep in logical time, which advances as far as results are known.

    Args:
        searcher: Proposes configs; its study must be empty.
        scheduler: Decides; must be new.
        num_slots: Trials that run at a time in logical time.
        num_samples: Number of trials.
        space: The search space; with it, iterations take the cost that trials report as
            ``perf/epoch_cost``, and one logical second otherwise.
        seed: Seed of Python's and NumPy's global generators, which Ray's schedulers use.
        end_reason: Called in logical order with a trial, its result and all trials; returns why the
            sweep ends with it, or None.

    Attributes:
        end_reason: Why a result has ended the sweep, or None. Trials that run then go on to their
            limits.
        results: All known results, whether their turn has come or not; empty for a failure.
        events: Configs and results of trials in logical order, each as a line of JSON.
    """

    def __init__(
        self,
        searcher: Searcher,
        scheduler: OutcomeMixin,
        *,
        num_slots: int,
        num_samples: int,
        space: SearchSpace | None = None,
        seed: int = 0,
        end_reason: Callable[[Trial, Mapping[str, Any], Sequence[Trial]], str | None] = lambda *_: (
            None
        ),
    ) -> None:
        self.scheduler = scheduler
        self.end_reason: str | None = None
        self.results: dict[Position, Mapping[str, Any]] = {}
        self.events: list[str] = []
        self._has_news = True
        self._end_reason = end_reason
        self._costs = EpochCosts(space) if space is not None else None
        self._known_costs: dict[tuple[int, int], float] = {}
        self._configs: dict[tuple[int, int], dict[str, Any]] = {}
        self._reached: dict[tuple[int, int], int] = {}
        self._folder = tempfile.TemporaryDirectory()  # for the notes of Ray's schedulers
        self._search = VirtualSearch(
            ConcurrencyLimiter(searcher, num_slots),
            num_samples,
            scheduler.settings.max_t,
            self._folder.name,
        )
        self._controller = VirtualController(
            self, self._search, scheduler, num_workers=num_slots, on_event=self._process
        )
        generator = random.Random(seed)
        self._states = generator.getstate(), np.random.RandomState(seed % 2**32).get_state()

    @property
    def num_created(self) -> int:
        """Number of trials proposed so far."""
        return len(self._controller.get_trials())

    @property
    def now_s(self) -> float:
        """Logical time of the last decision, in seconds."""
        return self._controller.now_s

    @property
    def has_all_trials(self) -> bool:
        """Whether no further trial will be proposed."""
        return self.end_reason is not None or self._search.is_finished()

    @property
    def has_ended(self) -> bool:
        """Whether all trials have ended, or the sweep by a result."""
        return self.end_reason is not None or not self._controller.get_live_trials()

    @property
    def fingerprint(self) -> str:
        """Digest of all events and outcomes so far, 16 hexadecimal digits."""
        outcomes = [str(self.assignment(number).outcome) for number in range(self.num_created)]
        later = [repr(item) for item in sorted(self.results.items()) if self._is_later(item[0])]
        text = "\n".join([*self.events, *outcomes, *later])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def trial(self, number: int) -> Trial:
        """Return a trial in logical time, as the scheduler knows it."""
        return self._controller.get_trials()[number]

    def config(self, number: int, segment: int = 0) -> dict[str, Any]:
        """Return the flat config of a segment of a trial."""
        known = self._configs.get((number, segment))
        return flatten(self.trial(number).config) if known is None else known

    def start(self, number: int, segment: int) -> Position:
        """Return the position in whose state a later segment than the first begins."""
        return _position(self._controller.starts[self.trial(number)][segment - 1])

    def report(self, position: Position, metrics: Mapping[str, Any]) -> None:
        """Add a result, or a failure if there are no metrics; a known one stays."""
        self.results.setdefault(position, metrics)
        self._has_news = True

    def advance(self) -> None:
        """Make all decisions that the known results allow."""
        if self._has_news and self.end_reason is None:
            self._has_news = False
            with self._own_generators(), one_thread():
                self._controller.advance()

    def assignment(self, number: int) -> Assignment:
        """Return what a trial is to do, as far as it is decided."""
        trial = self.trial(number)
        segment = self._segment(trial)
        reached = self.reached(number, segment)
        if trial.is_finished():
            outcome = Outcome.of_result(trial.last_result)
            if trial.status == Trial.ERROR:
                outcome = Outcome.ERROR
            cause = trial.last_result.get(STOP_CAUSE)
            return Assignment(segment, reached, outcome=outcome, cause=cause)
        awaited = self._controller.next_result(trial)
        if awaited is None:
            return Assignment(segment, reached)
        iteration, due = awaited
        return Assignment(segment, self.scheduler.next_decision(iteration), due)

    def needed_positions(self) -> set[Position]:
        """Return the positions from which trials continue that another trial reached first."""
        starts = self._controller.starts.values()
        return self.donor_positions() | {_position(each) for some in starts for each in some}

    def donor_positions(self) -> set[Position]:
        """Return the positions from which trials may continue by the next decisions."""
        latest = (trial.latest_checkpoint_result for trial in self._controller.get_live_trials())
        return {_position(each.checkpoint) for each in latest if each is not None}

    def reached(self, number: int, segment: int) -> int:
        """Return the iteration that a segment of a trial has reached in logical time."""
        start = self.start(number, segment).iteration if segment else 0
        return self._reached.get((number, segment), start)

    # Results for the controller in virtual time.

    def seconds(self, trial: Trial) -> float:
        """Return the logical seconds of the trial's next iteration."""
        number, segment = int(trial.trial_id), self._segment(trial)
        if (number, segment) not in self._configs:
            config = self._configs[number, segment] = flatten(trial.config)
            start = vars(self.start(number, segment)) if segment else None
            self._add_event(number, config=config, start=start)
        if self._costs is None:
            return 1.0
        known = self._known_costs.get((number, segment))
        return self._costs.predict(self._configs[number, segment]) if known is None else known

    def result(self, trial: Trial, iteration: int) -> Mapping[str, Any] | None:
        """Return the metrics of an iteration; None if they are not known yet."""
        return self.results.get(Position(int(trial.trial_id), self._segment(trial), iteration))

    def _process(self, time_s: float, trial: Trial, result: Mapping[str, Any]) -> bool:
        """Note a result in logical order; return whether the sweep goes on."""
        iteration = result.get(TRAINING_ITERATION)
        self._add_event(int(trial.trial_id), time=time_s, result=dict(result))
        if iteration is not None:
            key = int(trial.trial_id), self._segment(trial)
            self._reached[key] = iteration
            cost = result.get(EPOCH_COST)
            if cost and self._costs is not None and key not in self._known_costs:
                self._known_costs[key] = float(cost)
                self._costs.add(self._configs[key], float(cost))
        trials = self._controller.get_trials()
        self.end_reason = self._end_reason(trial, result, trials) if result else None
        return self.end_reason is None

    def _is_later(self, position: Position) -> bool:
        """Return whether a result arrived before a turn that does not come: the sweep has ended."""
        if self.end_reason is None:
            return False
        return position.iteration > self.reached(position.trial, position.segment)

    def _segment(self, trial: Trial) -> int:
        return len(self._controller.starts.get(trial, ()))

    def _add_event(self, number: int, **values: Any) -> None:
        self.events.append(json.dumps({"trial": number, **values}, sort_keys=True, default=str))

    @contextmanager
    def _own_generators(self) -> Iterator[None]:
        """Let the global generators of Python and NumPy continue where this sweep left them."""
        before = random.getstate(), np.random.get_state()  # noqa: NPY002 - Ray uses it
        random.setstate(self._states[0])
        np.random.set_state(self._states[1])  # noqa: NPY002
        try:
            yield
        finally:
            self._states = random.getstate(), np.random.get_state()  # noqa: NPY002
            random.setstate(before[0])
            np.random.set_state(before[1])  # noqa: NPY002


def _position(checkpoint: VirtualCheckpoint) -> Position:
    iteration = int(checkpoint.metrics[TRAINING_ITERATION])
    return Position(int(checkpoint.trial.trial_id), checkpoint.segment, iteration)


def logical_metrics(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a trial reported, without what differs from run to run."""
    metrics = {
        name: value
        for name, value in flatten(result).items()
        if name not in BOOKKEEPING
        and name not in (MLFLOW_RUN_ID, CONFIG_CHANGED_AT)
        and not name.startswith("config/")
        and (name == EPOCH_COST or not is_machine_metric(name))
    }
    plain = json.loads(json.dumps(metrics, default=_plain))
    return {name: value for name, value in plain.items() if _is_kept(name, value)}


def _is_kept(name: str, value: Any) -> bool:
    """Return whether a value counts; that a trial is complete follows from the others."""
    if name == STOP_REASON:
        return bool(value != Outcome.COMPLETED.value)
    return isinstance(value, int | float)


def _plain(value: Any) -> Any:
    """Return a NumPy number as Python's, anything else as text."""
    return value.item() if hasattr(value, "item") else str(value)
