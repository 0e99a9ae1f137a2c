"""Which Tune trial is which Optuna trial, and what Optuna was told of it.

Tune saves a searcher now and then, the study lives on its own: after a kill the two disagree. What
was asked of the study after the last save has no Tune trial any more; the book finds these orphans
and hands their parameters out again before anything new is drawn, so that every trial of the study
gets an end and nothing is drawn twice.
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any, Final

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages import BaseStorage
from optuna.trial import FixedTrial, TrialState

from tune_tf.errors import SweepConflictError
from tune_tf.outcome import STOP_CAUSE, STOP_REASON, Outcome
from tune_tf.searchers.suggestions import Suggest
from tune_tf.searchers.verdict import Verdict

TUNE_TRIAL_ID: Final = "tune_trial_id"
"""User attribute of an Optuna trial that holds Tune's id of it."""

_NO_STEP = -1


@dataclass
class Entry:
    """One trial.

    Args:
        number: Optuna's number of it.
        seen: Iteration of the last result that Tune showed; None before the first.
        reported: Last step that Optuna was told; a retry repeats steps.
        finished: Whether Optuna has its end.
    """

    number: int
    seen: int | None = None
    reported: int = _NO_STEP
    finished: bool = False


@dataclass
class Page:
    """What is saved of a book.

    Args:
        entries: Trials by Tune's id.
        orphans: Numbers of trials that wait to be handed out again, in order.
        num_known: Trials that the study had when the page was written.
        looked: Whether orphans have been looked for; before that, nothing was drawn.
    """

    entries: dict[str, Entry] = field(default_factory=dict)
    orphans: list[int] = field(default_factory=list)
    num_known: int = 0
    looked: bool = False

    def copy(self) -> "Page":
        """Return a copy that does not change with this one."""
        entries = {tune_id: replace(entry) for tune_id, entry in self.entries.items()}
        return replace(self, entries=entries, orphans=list(self.orphans))


class TrialBook:
    """Trials of one study, by Tune's ids.

    Args:
        study: The study.
        storage: Where the study is kept.
        suggest: The search space.
        page: What was saved of the book, to go on from.

    Attributes:
        looked: Whether orphans have been looked for since the book was opened.

    Raises:
        SweepConflictError: The study has fewer trials than the page tells of.
    """

    def __init__(
        self, study: optuna.Study, storage: BaseStorage, suggest: Suggest, page: Page | None = None
    ) -> None:
        """Open the book; the study is not changed."""
        self.study = study
        self._storage = storage
        self._study_id = storage.get_study_id_from_name(study.study_name)
        self._suggest = suggest
        self._live: dict[str, optuna.Trial] = {}
        self.looked = False
        num_trials = storage.get_n_trials(self._study_id)
        self.page = page or Page(num_known=num_trials)
        if self.page.num_known > num_trials:
            raise SweepConflictError(
                f"study {study.study_name!r} has {num_trials} trials, but the searcher's state "
                f"knows {self.page.num_known}: it was saved with another study or storage"
            )

    def find_orphans(self, tune_ids: Collection[str] | None = None) -> int | None:
        """Look for trials that nobody will finish; before the first :meth:`ask`.

        Args:
            tune_ids: The trials that Tune knows, if that can be known. They settle what the page
                and the study leave open, as the files of one save may be of two ages.

        Returns:
            The number of trials in the study, if draws were made that the sampler does not know
            of; otherwise None.
        """
        self.looked = True
        trials = self.study.get_trials(deepcopy=False)
        page = self.page
        if tune_ids is not None:
            page.entries = {
                tune_id: entry
                for tune_id, entry in page.entries.items()
                if entry.finished or tune_id in tune_ids
            }
        owned = {entry.number for entry in page.entries.values()} | set(page.orphans)
        linked: dict[str, Entry] = {}
        orphans: list[int] = []
        for trial in trials:
            tune_id = str(trial.user_attrs.get(TUNE_TRIAL_ID))
            if trial.number in owned:
                continue
            if tune_id in (tune_ids or ()):
                linked[tune_id] = Entry(trial.number)
            elif _is_orphan(trial, page.num_known):
                orphans.append(trial.number)
        unknown = bool(orphans or linked) if page.looked else bool(trials)
        page.entries.update(linked)
        page.orphans = sorted(page.orphans + orphans)
        page.num_known, page.looked = len(trials), True
        return len(trials) if unknown else None

    def ask(self, tune_id: str) -> dict[str, Any]:
        """Return the next ``path -> value`` for a Tune trial: an orphan's, else a new one."""
        if self.page.orphans:
            return self._hand_out(tune_id, self.page.orphans.pop(0))
        trial = self.study.ask()
        self.page.num_known = max(self.page.num_known, trial.number + 1)
        self.page.entries[tune_id] = Entry(trial.number)
        return self._fill(tune_id, trial)

    def saw(self, tune_id: str, iteration: int) -> None:
        """Note that Tune showed a result."""
        if entry := self.page.entries.get(tune_id):
            entry.seen = iteration

    def last_seen(self, tune_id: str) -> int | None:
        """Return the iteration of the last result that Tune showed, or None."""
        entry = self.page.entries.get(tune_id)
        return entry.seen if entry else None

    def report(self, tune_id: str, iteration: int, value: float) -> None:
        """Add a finite value to a trial's curve; a step that is known already is left as it is."""
        trial = self._trial(tune_id)
        if trial is None or iteration <= self.page.entries[tune_id].reported:
            return
        try:
            trial.report(value, iteration)
        except UpdateFinishedTrialError:
            self._close(tune_id)
            return
        self.page.entries[tune_id].reported = iteration

    def tell(self, tune_id: str, verdict: Verdict) -> None:
        """Tell Optuna how a trial ended, unless it knows; an interrupted one is left running."""
        trial = self._trial(tune_id)
        if trial is None or verdict.outcome is Outcome.INTERRUPTED:
            return
        if verdict.value is not None and verdict.iteration is not None:
            self.report(tune_id, verdict.iteration, verdict.value)
        state, value = TrialState[verdict.outcome.optuna], verdict.value
        cause = verdict.cause
        if state is TrialState.PRUNED and self.page.entries[tune_id].reported == _NO_STEP:
            # Without a value Optuna's samplers would count it among the worst.
            state, cause = TrialState.FAIL, cause or "stopped before its first result"
        try:
            trial.set_user_attr(STOP_REASON, verdict.outcome.value)
            if cause or state is TrialState.FAIL:
                trial.set_user_attr(STOP_CAUSE, cause or verdict.outcome.value)
            self.study.tell(trial, value if state is TrialState.COMPLETE else None, state)
        except UpdateFinishedTrialError:
            pass  # somebody told its end in the meantime: it stands once, as it should
        self._close(tune_id)

    def last_value(self, tune_id: str) -> float | None:
        """Return the last value of a trial's curve, or None."""
        trial = self._trial(tune_id)
        if trial is None:
            return None
        curve = self._storage.get_trial(self._id_of(trial.number)).intermediate_values
        return curve[max(curve)] if curve else None

    def give_up_orphans(self) -> None:
        """Tell Optuna that orphans which no trial took up will not be finished."""
        for number in self.page.orphans:
            tune_id = f"orphan-{number}"
            self.page.entries[tune_id] = Entry(number)
            self.tell(tune_id, Verdict(Outcome.OUT_OF_BUDGET, cause="never taken up again"))
            del self.page.entries[tune_id]
        self.page.orphans.clear()

    def _hand_out(self, tune_id: str, number: int) -> dict[str, Any]:
        """Return an orphan's parameters to a Tune trial; link the two if it is unfinished."""
        frozen = self._storage.get_trial(self._id_of(number))
        entry = self.page.entries[tune_id] = Entry(number, finished=frozen.state.is_finished())
        if entry.finished:
            again = FixedTrial(frozen.params, number)
            return dict(self._suggest(again) or again.params)
        entry.reported = _last_step(frozen)
        return self._fill(tune_id, optuna.Trial(self.study, self._id_of(number)))

    def _fill(self, tune_id: str, trial: optuna.Trial) -> dict[str, Any]:
        """Draw the parameters of a trial that are not drawn yet."""
        self._live[tune_id] = trial
        trial.set_user_attr(TUNE_TRIAL_ID, tune_id)
        try:
            return dict(self._suggest(trial) or trial.params)
        except Exception as error:
            cause = f"no parameters: {type(error).__name__}: {error}"
            self.tell(tune_id, Verdict(Outcome.ERROR, cause=cause))
            raise

    def _trial(self, tune_id: str) -> optuna.Trial | None:
        """Return Optuna's handle of a trial; None if it is not ours or has ended."""
        entry = self.page.entries.get(tune_id)
        if entry is None or entry.finished:
            return None
        if tune_id not in self._live:
            frozen = self._storage.get_trial(self._id_of(entry.number))
            if frozen.state.is_finished():
                entry.finished = True
                return None
            entry.reported = _last_step(frozen)
            self._live[tune_id] = optuna.Trial(self.study, self._id_of(entry.number))
        return self._live[tune_id]

    def _close(self, tune_id: str) -> None:
        self.page.entries[tune_id].finished = True
        self._live.pop(tune_id, None)

    def _id_of(self, number: int) -> int:
        return self._storage.get_trial_id_from_study_id_trial_number(self._study_id, number)


def _is_orphan(trial: optuna.trial.FrozenTrial, num_known: int) -> bool:
    """Return whether a trial that no Tune trial owns is to be handed out again.

    One that has ended is, if it was asked for by Tune after the state was saved: Tune has forgotten
    it and will ask again.
    """
    if trial.state.is_finished():
        return trial.number >= num_known and TUNE_TRIAL_ID in trial.user_attrs
    return trial.state is TrialState.RUNNING


def _last_step(trial: optuna.trial.FrozenTrial) -> int:
    return max(trial.intermediate_values, default=_NO_STEP)
