"""Workers that train the trials of an ordered sweep, in any order, and with kills in between."""

import math
import random

from tune_tf import Objective
from tune_tf.schedulers import scheduler as make_scheduler
from tune_tf.schedulers.ordered_sweep import OrderedSweep
from tune_tf.searchers import OptunaSearcher
from tune_tf.space import Choice, Float, Int, SearchSpace

SPACE = SearchSpace(
    {
        "rate": Float(1e-4, 1e-1, log=True),
        "width": Int(8, 64, step=8),
        "kind": Choice(["a", "b", "c"]),
    }
)
ACCURACY = Objective("accuracy", "max")
MAX_T = 9


def make_sweep(settings, sampler="tpe", *, num_slots=6, num_samples=12, **options):
    """Create an ordered sweep with a scheduler by its settings."""
    seeded = {"seed": 1} if settings["name"] == "freeze_thaw" else {}
    scheduler = make_scheduler(**settings, **seeded, objective=ACCURACY, space=SPACE, epochs=MAX_T)
    searcher = OptunaSearcher(SPACE, ACCURACY, sampler, seed=1)
    return OrderedSweep(
        searcher, scheduler, num_slots=num_slots, num_samples=num_samples, seed=1, **options
    )


def result_of(config, iteration):
    """Return what a trial reports, None if it fails, and whether it is done."""
    draw = random.Random(repr(sorted(config.items())))
    kind, at = draw.random(), draw.randrange(1, MAX_T)
    value = 1 - abs(math.log10(config["rate"]) + 2) / 4 - draw.random() / iteration
    if iteration != at or kind > 0.3:
        return {"accuracy": value}, iteration == MAX_T
    if kind < 0.1:
        return None, True
    return {"accuracy": math.nan if kind < 0.2 else value}, True


class Workers:
    """Workers that train one trial at a time each, to the end of its turn.

    Args:
        make: Creates the ordered sweep, at the start and after each kill.
        num: How many they are.
        order: Seed of the order in which results arrive.
        kills: Share of the results after which the driver dies; it may forget the last one.
        kill_after: Number of results after which it dies once; None for never.
    """

    def __init__(self, make, num=1, *, order=0, kills=0.0, kill_after=None):
        self._make, self._num, self._kills = make, num, kills
        self._rng = random.Random(order)
        self._recorded = []
        self._saved = {}  # iterations from which trials go on; infinite for ended ones
        self._kill_after = kill_after
        self.num_kills = 0

    @property
    def num_results(self):
        return len(self._recorded)

    def run(self):
        """Train until no trial may go on; return the sweep."""
        ordered, training = self._make(), []
        ordered.advance()
        while ready := self._ready(ordered):
            training = [number for number in training if number in ready]
            free = [number for number in ready if number not in training]
            self._rng.shuffle(free)
            training += free[: self._num - len(training)]
            self._train(ordered, self._rng.choice(training))
            dies = self._rng.random() < self._kills
            if dies or (len(self._recorded) == self._kill_after and not self.num_kills):
                ordered, training = self._resumed(), []
            ordered.advance()
        return ordered

    def _ready(self, ordered):
        numbers = range(len(ordered.trials))
        return [number for number in numbers if self._saved.get(number, 0) < ordered.limit(number)]

    def _train(self, ordered, number):
        iteration = self._saved.get(number, 0) + 1
        metrics, done = result_of(ordered.config(number), iteration)
        self._saved[number] = math.inf if done else iteration
        self._recorded.append((number, iteration, metrics, done))
        self._report(ordered, *self._recorded[-1])

    def _report(self, ordered, number, iteration, metrics, done):
        if metrics is None:
            ordered.report_failure(number)
        else:
            ordered.report(number, iteration, metrics, done=done)

    def _resumed(self):
        """Begin again with what was recorded; trials go on from checkpoints before that."""
        self.num_kills += 1
        if self._rng.random() < 0.5:
            number, iteration, *_ = self._recorded.pop()
            self._saved[number] = iteration - 1
        ordered = self._make()
        for recorded in self._recorded:
            self._report(ordered, *recorded)
        for number, saved in self._saved.items():
            self._saved[number] = saved if saved == math.inf else self._rng.randint(0, saved)
        return ordered


def decisions(ordered):
    """Return the trials with their ends, the best of them and the digest of all results."""
    ends = [
        (ordered.config(number), ordered.outcome(number), ordered.limit(number))
        for number in range(len(ordered.trials))
    ]
    values = [trial.last_result.get("accuracy", math.nan) for trial in ordered.trials]
    best = max((value, number) for number, value in enumerate(values) if not math.isnan(value))
    return ends, best, ordered.end_reason, ordered.digest
