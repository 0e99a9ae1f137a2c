"""Schedulers by name."""

from collections.abc import Sequence
from typing import Any

from tune_tf.config import parse_scheduler_settings
from tune_tf.config.scheduler_settings import (
    AutoSettings,
    FreezeThawSettings,
    Pb2Settings,
    PbtSettings,
)
from tune_tf.constraint import Constraint
from tune_tf.objective import Objective
from tune_tf.schedulers.outcome_mixin import OutcomeMixin
from tune_tf.schedulers.population import PbtScheduler
from tune_tf.schedulers.stopping import FifoScheduler, make_stopping_scheduler
from tune_tf.space import SearchSpace


def scheduler(
    name: str,
    objective: Objective,
    *,
    space: SearchSpace | None = None,
    constraints: Sequence[Constraint] = (),
    **settings: Any,
) -> OutcomeMixin:
    """Create a Ray Tune scheduler that records in each trial's last result why it ended.

    Args:
        name: The scheduler: one of :data:`tune_tf.config.SCHEDULERS`, or the name of a class in
            ``ray.tune.schedulers``.
        objective: The metric that trials are compared by.
        space: The search space, for ``freeze_thaw`` and for schedulers that change parameters:
            ``pbt`` and ``pb2``.
        constraints: Bounds on reported metrics; for ``freeze_thaw``, a trial that violates one
            counts as the worst. The others ignore them.
        settings: The scheduler's settings, as in the ``scheduler`` section of a sweep file; see its
            class in :mod:`tune_tf.config.scheduler_settings`. Every scheduler has ``epochs``,
            after which a trial is complete, unless ``tune.run(stop=...)`` sets another
            ``training_iteration``.

    Raises:
        InvalidSettingsError: The name is unknown or settings are invalid; lists all errors.
    """
    parsed = parse_scheduler_settings({"name": name, **settings})
    if isinstance(parsed, AutoSettings):
        parsed = parsed.choose()
    match parsed:
        case PbtSettings():
            return PbtScheduler(objective, parsed, space)
        case Pb2Settings():
            from tune_tf.schedulers.pb2 import Pb2Scheduler  # late: Ray's loads scikit-learn

            return Pb2Scheduler(objective, parsed, space)
        case FreezeThawSettings():
            from tune_tf.schedulers.freeze_thaw import FreezeThawScheduler  # late: it loads SciPy

            return FreezeThawScheduler(objective, parsed, space, constraints)
    if parsed.name == "fifo":
        return FifoScheduler(objective, parsed)
    return make_stopping_scheduler(objective, parsed)
