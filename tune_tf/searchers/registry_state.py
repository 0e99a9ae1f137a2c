"""Saved state of a trial registry, and its reconciliation with a study."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Final

from optuna.trial import FrozenTrial, TrialState

from tune_tf.searchers.trial_attrs import TUNE_TRIAL_ID, WARM_START

NO_STEP: Final = -1
"""What stands for the last step of a trial that has none."""


@dataclass
class TrialRecord:
    """Registry entry of one trial.

    Args:
        number: Optuna's trial number.
        seen: Iteration of the last result that Tune passed on; None before the first.
        reported: Last step reported to Optuna; a retry repeats steps.
        values: The objectives' values at that step, as far as they were finite.
        finished: Whether Optuna knows the outcome.
    """

    number: int
    seen: int | None = None
    reported: int = NO_STEP
    values: tuple[float, ...] = ()
    finished: bool = False


@dataclass
class RegistryState:
    """Saved state of a trial registry.

    Args:
        records: Trials by Tune's id.
        orphans: Numbers of trials that wait to be assigned again, in order.
        num_known: Number of trials asked for when the state was saved.
        checked_orphans: Whether orphans have been looked for; before that, nothing is sampled.
    """

    records: dict[str, TrialRecord] = field(default_factory=dict)
    orphans: list[int] = field(default_factory=list)
    num_known: int = 0
    checked_orphans: bool = False

    def copy(self) -> "RegistryState":
        """Return an independent copy."""
        records = {tune_id: replace(record) for tune_id, record in self.records.items()}
        return replace(self, records=records, orphans=list(self.orphans))

    def adopt_orphans(
        self, trials: Collection[FrozenTrial], tune_ids: Collection[str] | None
    ) -> bool:
        """Find the trials of a study that no Tune trial will finish, and queue them as orphans.

        Args:
            trials: All trials of the study.
            tune_ids: The trials that Tune knows, if available. They decide where state and study
                disagree, since the files of one save may differ in age.

        Returns:
            Whether trials were sampled that the sampler does not know.
        """
        if tune_ids is not None:
            self.records = {
                tune_id: record
                for tune_id, record in self.records.items()
                if record.finished or tune_id in tune_ids
            }
        owned = {record.number for record in self.records.values()} | set(self.orphans)
        linked: dict[str, TrialRecord] = {}
        orphans: list[int] = []
        for trial in trials:
            tune_id = str(trial.user_attrs.get(TUNE_TRIAL_ID))
            if trial.number in owned:
                continue
            if tune_id in (tune_ids or ()):
                linked[tune_id] = TrialRecord(trial.number)
            elif _is_orphan(trial, self.num_known):
                orphans.append(trial.number)
        unknown = bool(orphans or linked) if self.checked_orphans else any(map(_was_drawn, trials))
        self.records.update(linked)
        self.orphans = sorted(self.orphans + orphans)
        self.num_known, self.checked_orphans = count_asked(trials), True
        return unknown


def _is_orphan(trial: FrozenTrial, num_known: int) -> bool:
    """Return whether a trial without a Tune trial is to be assigned again.

    A finished one is, if Tune asked for it after the state was saved: Tune has lost it and will ask
    again.
    """
    if trial.state.is_finished():
        return trial.number >= num_known and TUNE_TRIAL_ID in trial.user_attrs
    return trial.state is TrialState.RUNNING


def _was_drawn(trial: FrozenTrial) -> bool:
    """Return whether this study's sampler drew a trial's parameters."""
    return WARM_START not in trial.user_attrs and trial.state is not TrialState.WAITING


def count_asked(trials: Collection[FrozenTrial]) -> int:
    """Return the highest number of a trial that is not waiting, plus one."""
    asked = (trial.number for trial in trials if trial.state is not TrialState.WAITING)
    return max(asked, default=-1) + 1


def last_step(trial: FrozenTrial) -> int:
    """Return the last step of a trial's curve; :data:`NO_STEP` if it is empty."""
    return max(trial.intermediate_values, default=NO_STEP)
