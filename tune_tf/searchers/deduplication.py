"""Draws that are tried out before they are made, so that no known config is drawn again.

Optuna's samplers look past failed trials, and propose what they know to be good as often as they
are asked. Where parameters are numbers of a range, the same config is not drawn twice anyway; where
all of them are options or steps, it is. In place of a known config a random one is drawn.

Measured in virtual time on 2,160 really trained configs of five choices, with TPE, ASHA and 1
worker, 8 seeds: one of the best 1 % was found by 8 instead of 2, one of the best 0.1 % by 3 instead
of 0. A neighbour of the known config in place of a random one was no better than a repeat, in 6
seeds; several draws of the sampler before it cost several times as much.
"""

import zlib
from collections.abc import Callable, Collection, Iterable
from typing import Final

import optuna
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState

from tune_tf.outcome import CONFIG_CHANGED_AT, STOP_REASON, Outcome
from tune_tf.searchers.space_adapter import Suggest
from tune_tf.searchers.storage.overlay import OverlayStorage
from tune_tf.searchers.trial_attrs import WARM_START

Point = frozenset[tuple[str, str]]
"""The parameters of a trial, as a key."""

NO_POINTS: Final[Collection[Point]] = frozenset()

# The last of n configs is missed by 8 n draws in 3 of 10,000 cases; each takes 0.2 ms.
_RANDOM_DRAWS_A_POINT = 8
_MOST_RANDOM_DRAWS = 500


def point_of(trial: FrozenTrial) -> Point:
    """Return a trial's parameters as a key."""
    return frozenset((path, repr(value)) for path, value in trial.params.items())


def diverged(trial: FrozenTrial) -> bool:
    """Return whether a trial gave NaN or Inf, and gives it again with the same parameters."""
    return (
        trial.state is TrialState.FAIL
        and trial.user_attrs.get(STOP_REASON) == Outcome.DIVERGED.value
        and CONFIG_CHANGED_AT not in trial.user_attrs  # then it was not these parameters' doing
    )


def tried(trial: FrozenTrial) -> bool:
    """Return whether a trial was asked for in this study, however it ended or still runs.

    What an earlier sweep tried may be tried again: this one has no checkpoint of it.
    """
    return trial.state is not TrialState.WAITING and WARM_START not in trial.user_attrs


class Points:
    """The parameters of a study's trials, of those that might be drawn again.

    Args:
        counts: Whether a trial is meant.
    """

    def __init__(self, counts: Callable[[FrozenTrial], bool]) -> None:
        self._counts = counts
        self._settled: set[int] = set()
        self._of_ended: set[Point] = set()

    def among(self, trials: Iterable[FrozenTrial]) -> Collection[Point]:
        """Return the parameters; a trial that had ended the time before is not looked at again."""
        of_unfinished: set[Point] = set()
        for trial in trials:
            if trial.number in self._settled:
                continue
            ended = trial.state.is_finished()
            if ended:
                self._settled.add(trial.number)
            if self._counts(trial) and trial.params and _is_discrete(trial):
                (self._of_ended if ended else of_unfinished).add(point_of(trial))
        return self._of_ended | of_unfinished


def deduplicate(
    study: optuna.Study,
    storage: BaseStorage,
    suggest: Suggest,
    refused: Collection[Point],
    known: Collection[Point] = NO_POINTS,
) -> FrozenTrial:
    """Return a trial that a sampler would draw; the study does not get it.

    It is the sampler's draw, if that is neither refused nor known; else the first random one that
    is neither; else, as where everything is known, the first of them all that is not refused. What
    the sampler notes on the study is kept, and what it notes on the trial is in the trial.

    Args:
        study: The study, with its sampler.
        storage: Where the sampler looks.
        suggest: The search space.
        refused: Parameters not to draw.
        known: Parameters to draw only if there are no others.
    """
    stage = _Stage(study.study_name, OverlayStorage(storage), suggest)
    taken = {*refused, *known}
    draws = [stage.draw(study.sampler)]
    if point_of(draws[0]) not in taken:
        return draws[0]
    chance = RandomSampler(_seed_of(draws[0]))
    for _ in range(min(_MOST_RANDOM_DRAWS, _RANDOM_DRAWS_A_POINT * len(taken))):
        drawn = stage.draw(chance)
        drawn.system_attrs = draws[0].system_attrs  # as what counts generations needs them
        if point_of(drawn) not in taken:
            return drawn
        draws.append(drawn)
    return next((each for each in draws if point_of(each) not in refused), draws[0])


class _Stage:
    """Where trials are drawn and forgotten.

    Args:
        study_name: The study.
        storage: What shows it.
        suggest: The search space.
    """

    def __init__(self, study_name: str, storage: OverlayStorage, suggest: Suggest) -> None:
        self._study_name = study_name
        self._storage = storage
        self._suggest = suggest

    def draw(self, sampler: BaseSampler) -> FrozenTrial:
        """Return what a sampler draws for the next trial."""
        study = optuna.load_study(
            study_name=self._study_name, storage=self._storage, sampler=sampler
        )
        asked = study.ask()
        self._suggest(asked)
        [drawn] = self._storage.drafts
        self._storage.forget()
        return drawn


def _seed_of(trial: FrozenTrial) -> int:
    """Return a number that follows from what a sampler drew, so that its seed decides the rest."""
    return zlib.crc32(repr((trial.number, sorted(point_of(trial)))).encode())


def _is_discrete(trial: FrozenTrial) -> bool:
    """Return whether all that was drawn for a trial are options or steps."""
    return all(map(_has_steps, trial.distributions.values()))


def _has_steps(distribution: BaseDistribution) -> bool:
    return not isinstance(distribution, FloatDistribution) or distribution.step is not None
