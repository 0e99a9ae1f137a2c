"""Trials of a study, by Ray Tune's ids: they are asked for, reported and told."""

import copy
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState

from tune_tf.outcome import CONFIG_CHANGED_AT, Outcome
from tune_tf.result_keys import TRAINING_ITERATION
from tune_tf.searchers.criteria import SearchCriteria
from tune_tf.searchers.samplers.custom_samplers import ExhaustiveSampler
from tune_tf.searchers.trial_attrs import TUNE_TRIAL_ID
from tune_tf.searchers.trial_progress import TrialProgress
from tune_tf.space.optuna_form import OptunaSpace


@dataclass
class TrialRecord:
    """What a searcher knows of one of Tune's trials.

    Args:
        number: Optuna's number.
        progress: What its results say, until it has ended.
        ended: Whether Optuna knows its end.
    """

    number: int
    progress: TrialProgress = field(default_factory=TrialProgress)
    ended: bool = False


class StudyTrials:
    """Trials of one study, by Tune's ids.

    Args:
        study: The study.
        storage: Its storage.
        sampled: The study as its sampler sees it.
        suggest: The search space.
        criteria: Objectives and constraints.
        records: What is known of the trials; those that are missing here are looked up in the
            study, by the user attribute with Tune's id.
    """

    def __init__(
        self,
        study: optuna.Study,
        storage: BaseStorage,
        sampled: optuna.Study,
        suggest: OptunaSpace,
        criteria: SearchCriteria,
        records: dict[str, TrialRecord],
    ) -> None:
        self.study, self.sampled, self.records = study, sampled, records
        self._storage, self._suggest, self._criteria = storage, suggest, criteria
        self._study_id = storage.get_study_id_from_name(study.study_name)

    @property
    def num_unfinished(self) -> int:
        """Number of trials that were asked for and have not ended."""
        return sum(not record.ended for record in self.records.values())

    @property
    def exhausted(self) -> bool:
        """Whether all configs of a finite space have been assigned."""
        sampler = self.sampled.sampler
        if not isinstance(sampler, ExhaustiveSampler):
            return False
        waiting = self.study.get_trials(False, (TrialState.WAITING,))
        return not waiting and sampler.exhausted(self.study)

    def frozen(self, tune_id: str) -> FrozenTrial | None:
        """Return Optuna's trial; None if there is none."""
        record = self.record(tune_id)
        return self._storage.get_trial(self._id_of(record)) if record else None

    def record(self, tune_id: str) -> TrialRecord | None:
        """Return what is known of a trial; None if Optuna does not know it."""
        if tune_id not in self.records:
            for trial in self.study.get_trials(deepcopy=False):
                if trial.user_attrs.get(TUNE_TRIAL_ID) == tune_id:
                    progress = TrialProgress(dict(trial.intermediate_values))
                    ended = trial.state.is_finished()
                    self.records[tune_id] = TrialRecord(trial.number, progress, ended)
        return self.records.get(tune_id)

    def ask(self, tune_id: str) -> dict[str, Any]:
        """Return ``path -> value`` for a new trial."""
        trial = self.sampled.ask()
        self.records[tune_id] = TrialRecord(trial.number)
        trial.set_user_attr(TUNE_TRIAL_ID, tune_id)
        try:
            return self._suggest(trial)
        except Exception as error:
            cause = f"no parameters: {type(error).__name__}: {error}"
            self.tell(tune_id, Outcome.ERROR, cause)
            raise

    def note_last(self, tune_id: str, result: Mapping[str, Any]) -> None:
        """Record a trial's last result, flat, of which the curve has what belongs there."""
        if TRAINING_ITERATION in result and (record := self.record(tune_id)):
            record.progress.last = result

    def report(self, tune_id: str, result: Mapping[str, Any]) -> None:
        """Add a flat result to a trial's curve; a step that exists is left unchanged."""
        record = self.record(tune_id)
        if record is None or record.ended:
            return
        progress, trial_id = record.progress, self._id_of(record)
        was_changed = progress.changed_at is not None
        has_grown = progress.add(result, self._criteria)
        with suppress(UpdateFinishedTrialError):  # told by another process in the meantime
            if progress.changed_at is not None and not was_changed:
                self._storage.set_trial_user_attr(trial_id, CONFIG_CHANGED_AT, progress.changed_at)
            if has_grown:
                # Trial.report refuses studies of several objectives; the storage does not.
                step = max(progress.curve)
                value = progress.curve[step]
                self._storage.set_trial_intermediate_value(trial_id, step, value)

    def tell(
        self,
        tune_id: str,
        outcome: Outcome,
        cause: str | None = None,
        mean: Mapping[str, Any] | None = None,
    ) -> None:
        """Tell Optuna an outcome unless it is known; an interrupted trial stays RUNNING.

        ``mean`` is the result of a trial that stands for several.
        """
        record = self.record(tune_id)
        if record is None or record.ended or outcome is Outcome.INTERRUPTED:
            return
        end, trial_id = (
            record.progress.end(outcome, cause, self._criteria, mean),
            self._id_of(record),
        )
        frozen = copy.deepcopy(self._storage.get_trial(trial_id))
        for name, violation in end.violations.items():
            if name not in frozen.constraints:
                frozen.set_constraint(name, violation)
        with suppress(UpdateFinishedTrialError):
            for key, value in end.attrs.items():
                self._storage.set_trial_user_attr(trial_id, key, value)
            known = self._storage.get_trial(trial_id).system_attrs
            for key in frozen.system_attrs.keys() - known.keys():  # the constraints
                self._storage.set_trial_system_attr(trial_id, key, frozen.system_attrs[key])
            self.sampled.tell(record.number, end.values, end.state)
        record.ended, record.progress = True, TrialProgress()  # the study has it all

    def _id_of(self, record: TrialRecord) -> int:
        return self._storage.get_trial_id_from_study_id_trial_number(self._study_id, record.number)
