"""Pairs of a searcher and a scheduler for a problem."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from optuna.samplers import BaseSampler, RandomSampler
from ray.tune.schedulers import AsyncHyperBandScheduler, TrialScheduler
from ray.tune.search import Searcher
from ray.tune.search.optuna import OptunaSearch

from tune_tf.schedulers import scheduler as make_scheduler
from tune_tf.searchers import OptunaSearcher
from tune_tf.simulation.problem import Problem


@dataclass(frozen=True)
class Pairing:
    """Searcher that proposes configs, and scheduler that stops trials."""

    searcher: Searcher
    scheduler: TrialScheduler


def make_pairing(
    problem: Problem,
    sampler: str | BaseSampler = "tpe",
    scheduler: str = "asha",
    *,
    seed: int | None = None,
    **settings: Any,
) -> Pairing:
    """Return tune_tf's searcher and scheduler for a problem, by name.

    The scheduler's ``max_t`` is that of the problem; ``settings`` are its further settings.

    Raises:
        InvalidSettingsError: A name is unknown, or settings are invalid.
    """
    stops = make_scheduler(
        scheduler, problem.objective, space=problem.space, max_t=problem.max_t, **settings
    )
    return Pairing(OptunaSearcher(problem.space, problem.objective, sampler, seed=seed), stops)


def make_ray_pairing(
    problem: Problem,
    sampler: str | None = None,
    *,
    grace_period: int = 1,
    reduction_factor: float = 3,
    seed: int | None = None,
) -> Pairing:
    """Return Ray's own ``OptunaSearch`` and ``ASHAScheduler`` for a problem.

    ``sampler`` is ``"random"``, or None for the default of ``OptunaSearch``.
    """
    metric, mode = problem.objective.metric, problem.objective.mode
    proposes = OptunaSearch(
        OptunaSearch.convert_search_space(problem.space.to_ray()),
        metric=metric,
        mode=mode,
        **({"sampler": RandomSampler(seed)} if sampler == "random" else {"seed": seed}),
    )
    stops = AsyncHyperBandScheduler(
        metric=metric,
        mode=mode,
        max_t=problem.max_t,
        grace_period=grace_period,
        reduction_factor=reduction_factor,
    )
    return Pairing(proposes, stops)


PAIRINGS: Final[dict[str, Callable[[Problem, int], Pairing]]] = {
    "tpe": lambda problem, seed: make_pairing(problem, "tpe", seed=seed),
    "tpe_rungs": lambda problem, seed: make_pairing(problem, "tpe_rungs", seed=seed),
    "random": lambda problem, seed: make_pairing(problem, "random", seed=seed),
    "ray": lambda problem, seed: make_ray_pairing(problem, seed=seed),
}
"""Pairings with ASHA by name: tune_tf's with three samplers, and Ray's own."""
