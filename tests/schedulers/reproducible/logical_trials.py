"""Trials whose results arrive at a sweep in logical time in any order."""

import math
import random
from importlib.util import find_spec

from tune_tf import Objective
from tune_tf.constraint import Constraint
from tune_tf.schedulers import scheduler as make_scheduler
from tune_tf.schedulers.logical_sweep import LogicalSweep, Position
from tune_tf.searchers import OptunaSearcher
from tune_tf.space import Choice, Float, Int, SearchSpace

SPACE = SearchSpace(
    {
        "rate": Float(1e-4, 1e-1, log=True),
        "width": Int(8, 64, step=8),
        "momentum": Float(0, 1),
        "kind": Choice(["a", "b", "c"]),
    }
)
NUMBERS = SearchSpace({name: SPACE.parameters[name] for name in ("rate", "width", "momentum")})
GRID = SearchSpace({"width": Int(8, 24, step=8), "kind": Choice(["a", "b"])})
ACCURACY = Objective("accuracy", "max")
MAX_T = 9
PBT = {"perturbation_interval": 2, "mutations": ["momentum"]}
CASES = [
    ({"name": "fifo"}, "random"),
    ({"name": "fifo"}, "QMCSampler"),
    ({"name": "fifo"}, "grid"),
    ({"name": "asha"}, "tpe"),
    ({"name": "asha"}, "nsga2"),
    ({"name": "asha", "brackets": 2, "reduction_factor": 1.5}, "nsga3"),
    ({"name": "asha", "reduction_factor": 1.6}, "BruteForceSampler"),
    ({"name": "HyperBandScheduler"}, "tpe"),
    ({"name": "HyperBandForBOHB"}, "cmaes"),
    ({"name": "MedianStoppingRule", "grace_period": 2}, "tpe"),
    ({"name": "MedianStoppingRule", "hard_stop": False}, "tpe"),
    ({"name": "pbt", **PBT}, "random"),
    ({"name": "pbt", **PBT, "synch": True}, "random"),
    ({"name": "pb2", **PBT}, "random"),
    ({"name": "pb2", **PBT, "synch": True}, "random"),
    ({"name": "freeze_thaw", "reduction_factor": 2, "max_paused": 3}, "freeze_thaw"),
    ({"name": "freeze_thaw"}, "tpe"),
]
"""Settings of a scheduler and a sampler."""
if find_spec("torch") and find_spec("greenlet"):  # large, and installed by choice
    CASES.append(({"name": "fifo"}, "gp"))
IDS = ["-".join([*map(str, settings.values()), sampler]) for settings, sampler in CASES]


def make_sweep(settings, sampler, *, num_slots=4, num_samples=12, end_reason=None, several=False):
    """Create a sweep in logical time, with a constraint."""
    space = {"cmaes": NUMBERS, "grid": GRID, "BruteForceSampler": GRID}.get(sampler, SPACE)
    constraints = (Constraint.parse("size", "<= 56"),)
    seeded = {"seed": 1} if settings["name"] == "freeze_thaw" else {}
    scheduler = make_scheduler(
        **settings, **seeded, objective=ACCURACY, space=space, constraints=constraints, max_t=MAX_T
    )
    objectives = [ACCURACY, Objective("size", "min")] if several else ACCURACY
    searcher = OptunaSearcher(space, objectives, sampler, seed=1, constraints=constraints)
    return LogicalSweep(
        searcher,
        scheduler,
        num_slots=num_slots,
        num_samples=num_samples,
        seed=1,
        space=space,
        **({"end_reason": end_reason} if end_reason else {}),
    )


def metrics_of(config, iteration, start):
    """Return what a trial reports: a curve that follows from its config and its start."""
    draw = random.Random(repr(sorted(config.items())))
    bad, at = draw.random(), draw.randrange(1, MAX_T)
    if bad < 0.1 and iteration == at:
        return {}  # it fails
    rate, momentum = config.get("rate", 0.01), config.get("momentum", 0.5)
    value = 1 - abs(math.log10(rate) + 2) / 4 - momentum * 0.3 / iteration - draw.random() / 10
    if 0.1 < bad < 0.2 and iteration == at:
        value = math.nan
    ends = {"done": True} if 0.2 < bad < 0.3 and iteration == at else {}
    inherited = 0.001 * (start.trial + 1) if start else 0.0
    cost = 1 + momentum + config["width"] / 100
    return {
        "accuracy": value + inherited,
        "size": config["width"] + momentum,
        "perf/epoch_cost": cost,
        **ends,
    }


class Workers:
    """Workers that train the trials of a sweep in logical time, as far as they may.

    Args:
        sweep: The sweep.
        num: Trials that train at a time.
        order: Seed of the order in which results arrive; None for that in which they are due.
    """

    def __init__(self, sweep, num=1, order=None):
        self.sweep, self._num, self._order = sweep, num, order
        self._rng = random.Random(order)
        self._reached = {}

    def run(self):
        """Train until no trial may go on; return the sweep."""
        self.sweep.advance()
        while ready := self.ready():
            due = ready[: self._num] if self._order is not None else ready[:1]
            _, position, start = self._rng.choice(due)
            config = self.sweep.config(position.trial, position.segment)
            self.sweep.report(position, metrics_of(config, position.iteration, start))
            self._reached[position.trial] = position.segment, position.iteration
            self.sweep.advance()
        return self.sweep

    def ready(self):
        """Return the results that may be trained, those that are due first before others."""
        found = []
        for number in range(self.sweep.num_created):
            todo = self.sweep.assignment(number)
            start = self.sweep.start(number, todo.segment) if todo.segment else None
            segment, reached = self._reached.get(number, (0, 0))
            if segment < todo.segment:
                reached = start.iteration
            if todo.outcome is None and reached < todo.limit:
                last = self.sweep.results.get(Position(number, todo.segment, reached))
                if last is None or not _ends(last):
                    found.append((todo.due, Position(number, todo.segment, reached + 1), start))
        return sorted(found, key=lambda each: each[:2])


def _ends(metrics):
    """Return whether a trial ends by itself with what it reported."""
    return not metrics or "done" in metrics or math.isnan(metrics["accuracy"])
