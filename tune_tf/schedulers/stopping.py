"""Schedulers that stop trials for good: FIFO, ASHA, the median rule, Hyperband and BOHB."""

import math
from types import SimpleNamespace
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import (
    AsyncHyperBandScheduler,
    HyperBandForBOHB,
    HyperBandScheduler,
    MedianStoppingRule,
)

from tune_tf.config.scheduler_settings import (
    AshaSettings,
    BohbSettings,
    FifoSettings,
    HyperbandSettings,
    MedianStoppingSettings,
)
from tune_tf.objective import Objective
from tune_tf.schedulers.outcome_mixin import OutcomeMixin, comparison_arguments
from tune_tf.tune_internals.controller import ControllerProxy
from tune_tf.tune_internals.scheduler_limits import limit_in_hyperband, milestones


class FifoScheduler(OutcomeMixin):
    """Ray's ``FIFOScheduler`` with recorded trial outcomes; stops trials that diverge."""

    def __init__(self, objective: Objective, settings: FifoSettings) -> None:
        """Create Ray's scheduler."""
        super().__init__()
        self._configure(objective, settings)


class AshaScheduler(OutcomeMixin, AsyncHyperBandScheduler):
    """Ray's ``AsyncHyperBandScheduler`` with recorded trial outcomes.

    Rungs are at ``grace_period * reduction_factor ** k`` iterations. A trial that reaches one with
    a value worse than the quantile ``1 - 1 / reduction_factor`` of those before it is stopped for
    good (https://arxiv.org/abs/1810.05934, with stopping in place of promotion). With few slots the
    first trials therefore run far.
    """

    settings: AshaSettings

    def __init__(self, objective: Objective, settings: AshaSettings) -> None:
        """Create Ray's scheduler."""
        AsyncHyperBandScheduler.__init__(
            self,
            **comparison_arguments(objective),
            max_t=settings.max_t,
            grace_period=settings.grace_period,
            reduction_factor=settings.reduction_factor,
            brackets=settings.brackets,
        )
        self._configure(objective, settings)

    @property
    def rungs(self) -> tuple[int, ...]:
        """Iterations at which trials are compared, ascending; of several brackets, the first's."""
        first, factor = self.settings.grace_period, self.settings.reduction_factor
        count = int(math.log(self.settings.max_t / first) / math.log(factor) + 1)  # as Ray counts
        return tuple(sorted({math.ceil(first * factor**k) for k in range(count)}))


class MedianStoppingScheduler(OutcomeMixin, MedianStoppingRule):
    """Ray's ``MedianStoppingRule`` with recorded trial outcomes.

    A trial is stopped if its best value so far is worse than the median of the other trials' means
    up to the same iteration (https://research.google/pubs/pub46180). With ``hard_stop=False`` it is
    paused, and continues when no other trial waits; its trainable must save checkpoints.
    """

    settings: MedianStoppingSettings

    def __init__(self, objective: Objective, settings: MedianStoppingSettings) -> None:
        """Create Ray's scheduler."""
        MedianStoppingRule.__init__(
            self,
            **comparison_arguments(objective),
            grace_period=settings.grace_period,
            min_samples_required=settings.min_samples_required,
            hard_stop=settings.hard_stop,
        )
        self._configure(objective, settings)

    def next_decision(self, iteration: int) -> int:
        """Return the first iteration, from this one on, whose result may stop a trial."""
        return max(iteration, self.settings.grace_period)


class HyperbandScheduler(OutcomeMixin, HyperBandScheduler):
    """Ray's ``HyperBandScheduler`` with recorded trial outcomes (https://arxiv.org/abs/1603.06560).

    A trial that reaches its bracket's milestone is paused, so its trainable must save checkpoints.
    Once all trials of the bracket are there, the best ``1 / reduction_factor`` continue to the next
    one. A trial that survives all halvings is complete, even if rounding puts Ray's last milestone
    below ``max_t``.

    A bracket continues with the trials suggested so far. Where fewer trials run concurrently than a
    bracket holds, hardly any is stopped: use ``bohb`` there, which waits.
    """

    settings: HyperbandSettings | BohbSettings

    def __init__(self, objective: Objective, settings: HyperbandSettings | BohbSettings) -> None:
        """Create Ray's scheduler."""
        HyperBandScheduler.__init__(
            self,
            **comparison_arguments(objective),
            max_t=settings.max_t,
            reduction_factor=settings.reduction_factor,
        )
        self._configure(objective, settings)

    @property
    def rungs(self) -> tuple[int, ...]:
        """Milestones of all brackets, ascending."""
        return milestones(self.settings.max_t, self.settings.reduction_factor)

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Add a trial to a bracket unless it has finished: the bracket would wait forever."""
        if not trial.is_finished():
            super().on_trial_add(tune_controller, trial)

    def choose_trial_to_run(self, tune_controller: Any, **options: Any) -> Trial | None:
        """Return the trial to run next, after waking brackets that Ray has forgotten.

        Ray forgets a bracket whose last running trial fails or diverges after the first halving,
        and a trial that is still being saved when its bracket ends: paused trials would stay paused
        (ray#6780).
        """
        self._restore_state(tune_controller)
        with self._mark_decision():
            for bracket in self._stalled_brackets():
                self._process_bracket(tune_controller, bracket)
        return super().choose_trial_to_run(tune_controller, **options)

    def _stalled_brackets(self) -> list[Any]:
        """Return the brackets whose trials are all paused at the milestone."""
        brackets = (bracket for band in self._hyperbands for bracket in band if bracket)
        return [
            bracket
            for bracket in brackets
            if (trials := bracket.current_trials())
            and all(trial.status == Trial.PAUSED for trial in trials)
            and not bracket.trials_to_unpause
            and bracket.cur_iter_done()
        ]

    def _limit(self, trial: Trial) -> int:
        return limit_in_hyperband(self, trial)


class BohbScheduler(HyperbandScheduler, HyperBandForBOHB):
    """Ray's ``HyperBandForBOHB`` with recorded trial outcomes, for any searcher.

    The largest bracket comes first, and its trials wait until it is full or no more trials come. So
    choose it where few trials run concurrently: Hyperband's brackets continue with those that
    exist.
    """

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Return the decision of Ray's scheduler."""
        return super().on_trial_result(_pause_proxy(tune_controller), trial, result)

    def _unpause_trial(self, tune_controller: Any, trial: Trial) -> None:
        super()._unpause_trial(_pause_proxy(tune_controller), trial)

    def _stalled_brackets(self) -> list[Any]:
        """Return nothing: Ray's scheduler finds stalled brackets itself."""
        return []


def _pause_proxy(controller: Any) -> Any:
    """Return a controller whose searcher ignores notices of pauses, which few searchers accept."""
    searcher = SimpleNamespace(on_pause=lambda _: None, on_unpause=lambda _: None)
    return ControllerProxy(controller, search_alg=SimpleNamespace(searcher=searcher))
