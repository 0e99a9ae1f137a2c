"""Which Tune trial is which Optuna trial, and what Optuna was told of it.

Tune saves a searcher now and then, the study lives on its own: after a kill the two disagree. What
was asked of the study after the last save has no Tune trial any more; the book finds these orphans
and hands their parameters out again before anything new is drawn, so that every trial of the study
gets an end and nothing is drawn twice.
"""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages import BaseStorage
from optuna.trial import FixedTrial, FrozenTrial, TrialState

from tune_tf.outcome import CONFIG_CHANGED_AT, MLFLOW_RUN_ID, STOP_CAUSE, STOP_REASON, Outcome
from tune_tf.searchers.deduplication import NO_POINTS, Points, deduplicate, diverged, tried
from tune_tf.searchers.registry_state import (
    NO_STEP,
    RegistryState,
    TrialRecord,
    last_step,
    num_asked,
)
from tune_tf.searchers.samplers.exhaustive import ExhaustiveSampler
from tune_tf.searchers.space_adapter import Suggest
from tune_tf.searchers.storage.filtered import RungSource, no_rungs
from tune_tf.searchers.storage.recovery import StorageRecovery
from tune_tf.searchers.trial_attrs import LATE_RUN_IDS, RELINKED, TUNE_TRIAL_ID, tune_trial_id
from tune_tf.searchers.trial_outcome import TrialOutcome

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SamplerView:
    """Where the sampler works: what it sees of a study may be more than the truth.

    Args:
        study: The study with the sampler, as the sampler is to see it.
        storage: What shows it so.
        rungs: The scheduler's rungs. Where there are any, no config is asked for twice: equal
            trials end alike, and a scheduler that stops the worse ones stops none of them.
    """

    study: optuna.Study
    storage: BaseStorage
    rungs: RungSource = no_rungs


class TrialRegistry:
    """Trials of one study, by Tune's ids.

    Args:
        study: The study as it is.
        storage: Where the study is kept.
        suggest: The search space.
        page: What was saved of the book, to go on from.
        desk: Where the sampler works, if it sees the study otherwise.

    Attributes:
        looked: Whether orphans have been looked for since the book was opened.

    Raises:
        SweepConflictError: The study has fewer trials than the page tells of, and it does not say
            which those are: it is another study's.
    """

    def __init__(
        self,
        study: optuna.Study,
        storage: BaseStorage,
        suggest: Suggest,
        page: RegistryState | None = None,
        desk: SamplerView | None = None,
    ) -> None:
        """Open the book; the study is not changed."""
        self.study = study
        self.desk = desk or SamplerView(study, storage)
        self._storage = storage
        self._study_id = storage.get_study_id_from_name(study.study_name)
        self._suggest = suggest
        self._live: dict[str, optuna.Trial] = {}
        self._ids: dict[int, int] = {}
        self.looked = False
        self._diverged, self._tried = Points(diverged), Points(tried)
        self.page = page or RegistryState(num_known=num_asked(study.get_trials(deepcopy=False)))
        self._lost = StorageRecovery(study, storage, suggest, self.page)

    @property
    def num_unfinished(self) -> int:
        """How many of the trials that were asked for have no end yet."""
        return sum(not entry.finished for entry in self.page.entries.values())

    @property
    def exhausted(self) -> bool:
        """Whether nothing is left to ask for: all of a finite space has been handed out."""
        sampler = self.desk.study.sampler
        if not isinstance(sampler, ExhaustiveSampler) or self.page.orphans:
            return False
        waiting = self.study.get_trials(False, (TrialState.WAITING,))
        return not waiting and sampler.exhausted(self.study)

    def find_orphans(
        self,
        tune_ids: Collection[str] | None = None,
        configs: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> int | None:
        """Look for trials that nobody will finish; before the first :meth:`ask`.

        Args:
            tune_ids: The trials that Tune knows, if that can be known.
            configs: Their configs, flat, for trials that the study has lost.

        Returns:
            The number of trials in the study, if draws were made that the sampler does not know
            of; otherwise None.
        """
        self.looked = True
        self._lost.give_back(configs or {})
        trials = self.study.get_trials(deepcopy=False)
        unknown = self.page.settle(trials, tune_ids)
        unknown |= self._lost.add_unknown(configs or {})
        return len(trials) if unknown else None

    def without_end(self, tune_ids: Collection[str]) -> list[str]:
        """Return those of some trials whose end the study does not have, in order of number.

        Args:
            tune_ids: Trials that have ended.
        """
        entries = [(e.number, key) for key, e in self.page.entries.items() if key in tune_ids]
        found = [key for number, key in sorted(entries) if not self._is_finished(number)]
        for key in found:
            self.page.entries[key].finished = False
        return found

    def ask(self, tune_id: str) -> dict[str, Any]:
        """Return the next ``path -> value`` for a Tune trial: an orphan's, else a new one."""
        if self.page.orphans:
            return self._hand_out(tune_id, self.page.orphans.pop(0))
        trial = self._ask_anew()
        self.page.num_known = max(self.page.num_known, trial.number + 1)
        self.page.entries[tune_id] = TrialRecord(trial.number)
        return self._fill(tune_id, trial)

    def saw(self, tune_id: str, iteration: int) -> None:
        """Note that Tune showed a result."""
        if entry := self.page.entries.get(tune_id):
            entry.seen = iteration

    def entry(self, tune_id: str) -> TrialRecord | None:
        """Return what is known of a trial; None if it is not ours."""
        return self.page.entries.get(tune_id)

    def last_shown(self, tune_id: str) -> int | None:
        """Return the iteration of the last result that Tune showed; None if it showed none.

        After a kill the study may know of one that was shown after the page was saved.
        """
        entry = self.page.entries.get(tune_id)
        if entry is None:
            return None
        reported = last_step(self._frozen(entry.number))
        known = [at for at in (entry.seen, reported) if at is not None and at != NO_STEP]
        return max(known, default=None)

    def note_change(self, tune_id: str, iteration: int) -> None:
        """Note that a trial has another config than Optuna's after an iteration."""
        trial = self._trial(tune_id)
        if trial is not None and CONFIG_CHANGED_AT not in trial.user_attrs:
            trial.set_user_attr(CONFIG_CHANGED_AT, iteration)

    def report(
        self, tune_id: str, iteration: int, value: float, others: tuple[float, ...] = ()
    ) -> None:
        """Add a finite value to a trial's curve; a step that is known already is left as it is.

        Args:
            tune_id: Tune's id of the trial.
            iteration: The step.
            value: The leading objective's value.
            others: Those of the other objectives, which Optuna keeps no curve of.
        """
        trial = self._trial(tune_id)
        if trial is None or iteration <= self.page.entries[tune_id].reported:
            return
        try:
            # Trial.report refuses a study of several objectives; the storage does not.
            self._storage.set_trial_intermediate_value(self._id_of(trial.number), iteration, value)
        except UpdateFinishedTrialError:
            self._close(tune_id)
            return
        entry = self.page.entries[tune_id]
        entry.reported, entry.values = iteration, (value, *others)

    def tell(
        self,
        tune_id: str,
        verdict: TrialOutcome,
        facts: Mapping[str, Any] | None = None,
        violations: Mapping[str, float] | None = None,
    ) -> None:
        """Tell Optuna how a trial ended, unless it knows; an interrupted one is left running.

        Args:
            tune_id: Tune's id of the trial.
            verdict: The end.
            facts: User attributes of the trial.
            violations: By how much each constraint is broken, if the trial did not fail.
        """
        trial = self._trial(tune_id)
        if trial is None or verdict.outcome is Outcome.INTERRUPTED:
            return
        if verdict.value is not None and verdict.iteration is not None:
            self.report(tune_id, verdict.iteration, verdict.value, verdict.others)
        state, attributes = self._state_of(tune_id, verdict)
        attributes |= facts or {}
        values = None
        if state is TrialState.COMPLETE and verdict.value is not None:
            values = [verdict.value, *verdict.others]
        try:
            for key, value in attributes.items():
                if key != CONFIG_CHANGED_AT or key not in trial.user_attrs:  # the first one counts
                    trial.set_user_attr(key, value)
            if state is not TrialState.FAIL:
                self._constrain(trial, violations or {})
            self.desk.study.tell(trial, values, state)
        except UpdateFinishedTrialError:
            pass  # somebody told its end in the meantime: it stands once, as it should
        self._close(tune_id)

    def note_other_end(self, tune_id: str, outcome: Outcome) -> None:
        """Note with the study a trial that ended otherwise when it ran again, as after a kill."""
        entry = self.page.entries.get(tune_id)
        if entry is None or not entry.finished:
            return
        told = self._frozen(entry.number).user_attrs.get(STOP_REASON)
        if told not in (None, outcome.value):
            self._relink(entry.number, tune_id)

    def last_values(self, tune_id: str) -> tuple[float, ...]:
        """Return the objectives' last values, as far as they are known; the leading one first."""
        trial = self._trial(tune_id)
        if trial is None:
            return ()
        if values := self.page.entries[tune_id].values:
            return values
        curve = self._frozen(trial.number).intermediate_values
        return (curve[max(curve)],) if curve else ()

    def link(self, run_ids: Mapping[str, str | None]) -> None:
        """Keep MLflow's runs of trials, by Tune's id, that the trials do not name themselves.

        Optuna lets nothing be added to a trial that has ended, so the study keeps them.
        """
        attrs = self.study.user_attrs
        late = {}
        for trial in self.study.get_trials(deepcopy=False):
            run_id = run_ids.get(tune_trial_id(trial, attrs) or "")
            if run_id and trial.user_attrs.get(MLFLOW_RUN_ID) != run_id:
                late[str(trial.number)] = run_id
        if late:
            known = attrs.get(LATE_RUN_IDS, {})
            self.study.set_user_attr(LATE_RUN_IDS, {**known, **late})

    def give_up_orphans(self) -> None:
        """Tell Optuna that orphans which no trial took up will not be finished."""
        for number in self.page.orphans:
            self._end(number, "never taken up again")
        self.page.orphans.clear()

    def _ask_anew(self) -> optuna.Trial:
        """Return a new trial of Optuna's, with a config that is new where it can be."""
        study, storage = self.desk.study, self.desk.storage
        if study.get_trials(False, (TrialState.WAITING,)):
            return study.ask()
        trials = self.study.get_trials(deepcopy=False)
        refused = self._diverged.among(trials)
        finite = isinstance(study.sampler, ExhaustiveSampler)  # repeats nothing by itself
        known = self._tried.among(trials) if not finite and self.desk.rungs() else NO_POINTS
        if not refused and not known:
            return study.ask()
        drawn = deduplicate(study, storage, self._suggest, refused, known)
        trial_id = storage.create_new_trial(self._study_id, drawn)
        # A trial shows itself to its study's sampler, and this one's has seen it.
        blind = optuna.samplers.RandomSampler()
        shown = optuna.load_study(study_name=study.study_name, storage=storage, sampler=blind)
        return optuna.Trial(shown, trial_id)

    def end_lost(self) -> None:
        """End trials whose end the study has lost, and that Tune does not know."""
        finished = {entry.number for entry in self.page.entries.values() if entry.finished}
        for number in sorted(finished):
            if not self._is_finished(number):
                self._end(number, "the storage lost its end")

    def _is_finished(self, number: int) -> bool:
        return self._frozen(number).state.is_finished()

    def _end(self, number: int, cause: str) -> None:
        """Tell Optuna of a trial that no Tune trial will end."""
        name = f"orphan-{number}"
        self.page.entries[name] = TrialRecord(number)
        self.tell(name, TrialOutcome(Outcome.OUT_OF_BUDGET, cause=cause))
        del self.page.entries[name]

    def _hand_out(self, tune_id: str, number: int) -> dict[str, Any]:
        """Return an orphan's parameters to a Tune trial; link the two if it is unfinished."""
        frozen = self._frozen(number)
        entry = self.page.entries[tune_id] = TrialRecord(
            number, finished=frozen.state.is_finished()
        )
        if entry.finished:
            self._relink(number, tune_id)
            return self._suggest(FixedTrial(frozen.params, number))
        entry.reported = last_step(frozen)
        return self._fill(tune_id, optuna.Trial(self.desk.study, self._id_of(number)))

    def _fill(self, tune_id: str, trial: optuna.Trial) -> dict[str, Any]:
        """Draw the parameters of a trial that are not drawn yet."""
        self._live[tune_id] = trial
        trial.set_user_attr(TUNE_TRIAL_ID, tune_id)
        try:
            return self._suggest(trial)
        except Exception as error:
            cause = f"no parameters: {type(error).__name__}: {error}"
            self.tell(tune_id, TrialOutcome(Outcome.ERROR, cause=cause))
            raise

    def _relink(self, number: int, tune_id: str) -> None:
        known = self.study.user_attrs.get(RELINKED, {})
        self.study.set_user_attr(RELINKED, {**known, str(number): tune_id})

    def _state_of(self, tune_id: str, verdict: TrialOutcome) -> tuple[TrialState, dict[str, Any]]:
        """Return what Optuna calls an end, and the user attributes that explain it."""
        state, cause = TrialState[verdict.outcome.optuna], verdict.cause
        if state is TrialState.PRUNED and self.page.entries[tune_id].reported == NO_STEP:
            # Without a value Optuna's samplers would count it among the worst.
            state, cause = TrialState.FAIL, cause or "stopped before its first result"
        attributes = {STOP_REASON: verdict.outcome.value}
        if cause or state is TrialState.FAIL:
            attributes[STOP_CAUSE] = cause or verdict.outcome.value
        return state, attributes

    def _constrain(self, trial: optuna.Trial, violations: Mapping[str, float]) -> None:
        """Tell by how much a trial breaks each constraint, once."""
        if not violations:
            return
        told = self._frozen(trial.number).constraints
        for key, violation in violations.items():
            if key not in told:
                trial.set_constraint(key, violation)

    def _trial(self, tune_id: str) -> optuna.Trial | None:
        """Return Optuna's handle of a trial; None if it is not ours or has ended."""
        entry = self.page.entries.get(tune_id)
        if entry is None or entry.finished:
            return None
        if tune_id not in self._live:
            frozen = self._frozen(entry.number)
            if frozen.state.is_finished():
                entry.finished = True
                return None
            entry.reported = last_step(frozen)
            self._live[tune_id] = optuna.Trial(self.desk.study, self._id_of(entry.number))
        return self._live[tune_id]

    def _close(self, tune_id: str) -> None:
        self.page.entries[tune_id].finished = True
        self._live.pop(tune_id, None)

    def _frozen(self, number: int) -> FrozenTrial:
        return self._storage.get_trial(self._id_of(number))

    def _id_of(self, number: int) -> int:
        if number not in self._ids:
            self._ids[number] = self._storage.get_trial_id_from_study_id_trial_number(
                self._study_id, number
            )
        return self._ids[number]
