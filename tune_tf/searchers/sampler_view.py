"""The sampler's view of a study, and a dry run of the sampler before each new trial.

Optuna's samplers ignore failed trials and repeat configs that they rate highly. Where every
parameter is a choice or has a step, equal configs do occur; a known config is then replaced by a
random one.

Measured in virtual time on 2,160 fully trained configs of five choices, with TPE, ASHA and 1
worker: 8 of 8 seeds found one of the best 1 % instead of 2, and 3 found one of the best 0.1 %
instead of 0. A neighbour of the known config was no better than a repeat (6 seeds); asking the
sampler several times first cost several times as much.
"""

import zlib
from collections import ChainMap
from collections.abc import Callable, Collection, Sequence
from typing import Final

import optuna
from optuna.samplers import BaseSampler, RandomSampler
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState

from tune_tf.outcome import CONFIG_CHANGED_AT, STOP_REASON, Outcome
from tune_tf.searchers.samplers.custom_samplers import ExhaustiveSampler, is_continuous
from tune_tf.searchers.space_adapter import Suggest
from tune_tf.searchers.storage.filtered import RungSource, no_rungs
from tune_tf.searchers.storage.overlay import OverlayStorage
from tune_tf.searchers.trial_attrs import WARM_START

Point = frozenset[tuple[str, str]]
"""The parameters of a trial, as a key."""

NO_POINTS: Final[Collection[Point]] = frozenset()

# The last of n configs is missed by 8 n draws in 3 of 10,000 cases; each takes 0.2 ms.
_RANDOM_DRAWS_PER_POINT = 8
_MAX_RANDOM_DRAWS = 500


def params_key(trial: FrozenTrial) -> Point:
    """Return a trial's parameters as a hashable key."""
    return frozenset((path, repr(value)) for path, value in trial.params.items())


def is_diverged(trial: FrozenTrial) -> bool:
    """Return whether a trial gave NaN or Inf and would do so again with the same parameters."""
    return (
        trial.state is TrialState.FAIL
        and trial.user_attrs.get(STOP_REASON) == Outcome.DIVERGED.value
        and CONFIG_CHANGED_AT not in trial.user_attrs  # then other parameters caused it
    )


def is_asked(trial: FrozenTrial) -> bool:
    """Return whether a trial was asked for in this study, finished or running.

    Configs of an earlier sweep may be tried again, as this one has no checkpoint of them.
    """
    return trial.state is not TrialState.WAITING and WARM_START not in trial.user_attrs


class PointIndex:
    """Discrete parameters of those trials of a study that match a predicate."""

    def __init__(self, matches: Callable[[FrozenTrial], bool]) -> None:
        self._matches = matches
        self._num_seen = 0
        self.unfinished: list[int] = []
        """Numbers of the unfinished trials among those seen."""
        self._finished_points: dict[Point, None] = {}

    def among(self, trials: Sequence[FrozenTrial]) -> Collection[Point]:
        """Return the matching parameters of all trials, by number; finished ones are read once."""
        unfinished_points: dict[Point, None] = {}
        numbers = [*self.unfinished, *range(self._num_seen, len(trials))]
        self._num_seen, self.unfinished = len(trials), []
        for number in numbers:
            trial = trials[number]
            points = self._finished_points
            if not trial.state.is_finished():
                self.unfinished.append(number)
                points = unfinished_points
            if self._matches(trial) and trial.params and _is_discrete(trial):
                points[params_key(trial)] = None
        return ChainMap(unfinished_points, self._finished_points)  # not a copy of thousands


class SamplerView:
    """The sampler's view of a study, which may show more than is stored.

    Args:
        study: The study with the sampler, as the sampler sees it.
        storage: The storage behind that view.
        rungs: The scheduler's rungs. With rungs, no config is asked for twice: equal trials end
            alike, and a scheduler that stops the worse ones stops none of them.
    """

    def __init__(
        self, study: optuna.Study, storage: BaseStorage, rungs: RungSource = no_rungs
    ) -> None:
        self.study = study
        self._storage = storage
        self._rungs = rungs
        self._diverged, self._tried = PointIndex(is_diverged), PointIndex(is_asked)

    def ask(self, suggest: Suggest, stored: optuna.Study) -> optuna.Trial:
        """Return a new Optuna trial of the ``stored`` study, with a new config if possible."""
        trials = stored.get_trials(deepcopy=False)
        refused = self._diverged.among(trials)
        if any(trials[each].state is TrialState.WAITING for each in self._diverged.unfinished):
            return self.study.ask()
        repeats = not isinstance(self.study.sampler, ExhaustiveSampler)
        known = self._tried.among(trials) if repeats and self._rungs() else NO_POINTS
        if not refused and not known:
            return self.study.ask()
        name, storage = self.study.study_name, self._storage
        draft = draw_new_config(self.study, storage, suggest, refused, known)
        trial_id = storage.create_new_trial(storage.get_study_id_from_name(name), draft)
        # A new trial calls its study's sampler, which has sampled this one already.
        study = optuna.load_study(study_name=name, storage=storage, sampler=RandomSampler())
        return optuna.Trial(study, trial_id)


def draw_new_config(
    study: optuna.Study,
    storage: BaseStorage,
    suggest: Suggest,
    refused: Collection[Point],
    known: Collection[Point] = NO_POINTS,
) -> FrozenTrial:
    """Return the trial that the sampler would draw, without adding it to the study.

    A draw that is refused or known is replaced by the first random one that is neither, or, where
    all are known, by the first one that is not refused. The sampler's attributes of the study and
    of the trial are kept.
    """
    overlay = OverlayStorage(storage)  # type: ignore[abstract]

    def draw(sampler: BaseSampler) -> FrozenTrial:
        dry_study = optuna.load_study(study_name=study.study_name, storage=overlay, sampler=sampler)
        suggest(dry_study.ask())
        [draft] = overlay.drafts
        overlay.forget()
        return draft

    def is_excluded(draft: FrozenTrial) -> bool:
        point = params_key(draft)
        return point in refused or point in known

    drafts = [draw(study.sampler)]
    if not is_excluded(drafts[0]):
        return drafts[0]
    random_sampler = RandomSampler(_seed_of(drafts[0]))
    num_excluded = len({*refused, *known})
    for _ in range(min(_MAX_RANDOM_DRAWS, _RANDOM_DRAWS_PER_POINT * num_excluded)):
        draft = draw(random_sampler)
        draft.system_attrs = drafts[0].system_attrs  # NSGA-II counts generations by them
        if not is_excluded(draft):
            return draft
        drafts.append(draft)
    return next((each for each in drafts if params_key(each) not in refused), drafts[0])


def _seed_of(trial: FrozenTrial) -> int:
    """Return a seed derived from a sampled trial, so that the sampler's seed determines it."""
    return zlib.crc32(repr((trial.number, sorted(params_key(trial)))).encode())


def _is_discrete(trial: FrozenTrial) -> bool:
    return not any(map(is_continuous, trial.distributions.values()))
