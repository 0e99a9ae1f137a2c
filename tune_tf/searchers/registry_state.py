"""What is saved of a book of trials, and what a study's trials mean to it."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Final

from optuna.trial import FrozenTrial, TrialState

from tune_tf.searchers.trial_attrs import TUNE_TRIAL_ID, WARM_START

NO_STEP: Final = -1
"""What stands for the last step of a trial that has none."""


@dataclass
class TrialRecord:
    """One trial.

    Args:
        number: Optuna's number of it.
        seen: Iteration of the last result that Tune showed; None before the first.
        reported: Last step that Optuna was told; a retry repeats steps.
        values: The objectives' values at that step, as far as they were finite.
        finished: Whether Optuna has its end.
    """

    number: int
    seen: int | None = None
    reported: int = NO_STEP
    values: tuple[float, ...] = ()
    finished: bool = False


@dataclass
class RegistryState:
    """What is saved of a book.

    Args:
        entries: Trials by Tune's id.
        orphans: Numbers of trials that wait to be handed out again, in order.
        num_known: Trials that had been asked for when the page was written.
        looked: Whether orphans have been looked for; before that, nothing was drawn.
    """

    entries: dict[str, TrialRecord] = field(default_factory=dict)
    orphans: list[int] = field(default_factory=list)
    num_known: int = 0
    looked: bool = False

    def copy(self) -> "RegistryState":
        """Return a copy that does not change with this one."""
        entries = {tune_id: replace(entry) for tune_id, entry in self.entries.items()}
        return replace(self, entries=entries, orphans=list(self.orphans))

    def settle(self, trials: Collection[FrozenTrial], tune_ids: Collection[str] | None) -> bool:
        """Find out which of a study's trials nobody will finish, and take them for orphans.

        Args:
            trials: All of the study.
            tune_ids: The trials that Tune knows, if that can be known. They settle what the page
                and the study leave open, as the files of one save may be of two ages.

        Returns:
            Whether draws were made that the sampler does not know of.
        """
        if tune_ids is not None:
            self.entries = {
                tune_id: entry
                for tune_id, entry in self.entries.items()
                if entry.finished or tune_id in tune_ids
            }
        owned = {entry.number for entry in self.entries.values()} | set(self.orphans)
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
        unknown = bool(orphans or linked) if self.looked else any(map(_was_drawn, trials))
        self.entries.update(linked)
        self.orphans = sorted(self.orphans + orphans)
        self.num_known, self.looked = num_asked(trials), True
        return unknown


def _is_orphan(trial: FrozenTrial, num_known: int) -> bool:
    """Return whether a trial that no Tune trial owns is to be handed out again.

    One that has ended is, if it was asked for by Tune after the state was saved: Tune has forgotten
    it and will ask again.
    """
    if trial.state.is_finished():
        return trial.number >= num_known and TUNE_TRIAL_ID in trial.user_attrs
    return trial.state is TrialState.RUNNING


def _was_drawn(trial: FrozenTrial) -> bool:
    """Return whether a sampler of this study drew a trial's parameters."""
    return WARM_START not in trial.user_attrs and trial.state is not TrialState.WAITING


def num_asked(trials: Collection[FrozenTrial]) -> int:
    """Return one more than the highest number of a trial that does not wait to be asked for."""
    asked = (trial.number for trial in trials if trial.state is not TrialState.WAITING)
    return max(asked, default=-1) + 1


def last_step(trial: FrozenTrial) -> int:
    """Return the last step of a trial's curve."""
    return max(trial.intermediate_values, default=NO_STEP)
