"""Registry that maps Tune trials to Optuna trials and tracks what Optuna was told.

Tune saves a searcher now and then while the study is written continuously, so the two disagree
after a kill. Trials that the study was asked for after the last save have no Tune trial any more.
The registry finds these orphans and assigns their parameters again before anything new is sampled,
so every trial of the study is finished and nothing is sampled twice.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages import BaseStorage
from optuna.trial import FixedTrial, FrozenTrial, TrialState

from tune_tf.outcome import CONFIG_CHANGED_AT, MLFLOW_RUN_ID, STOP_REASON, Outcome
from tune_tf.searchers.criteria import SearchCriteria
from tune_tf.searchers.registry_state import (
    RegistryState,
    StorageRecovery,
    TrialRecord,
    next_number,
)
from tune_tf.searchers.samplers.custom_samplers import ExhaustiveSampler
from tune_tf.searchers.trial_attrs import LATE_RUN_IDS, RELINKED, TUNE_TRIAL_ID, tune_trial_id
from tune_tf.space.optuna_form import OptunaSpace


class TrialRegistry:
    """Trials of one study, by Tune's ids.

    Args:
        study: The study as it is stored.
        storage: The study's storage.
        suggest: The search space.
        criteria: Objectives and constraints.
        state: Saved state to continue from.
        sampled: The study as its sampler sees it, if that differs.

    Attributes:
        sampled: The same.
        reconciled: Whether the study was compared with Tune in this session.

    Raises:
        SweepConflictError: The study has fewer trials than the state and does not identify the
            missing ones: it is another study.
    """

    def __init__(
        self,
        study: optuna.Study,
        storage: BaseStorage,
        suggest: OptunaSpace,
        criteria: SearchCriteria,
        state: RegistryState | None = None,
        sampled: optuna.Study | None = None,
    ) -> None:
        """Open the registry; the study is not changed."""
        self.study = study
        self.sampled = sampled or study
        self._storage = storage
        self._study_id = storage.get_study_id_from_name(study.study_name)
        self._suggest = suggest
        self._criteria = criteria
        self._open_trials: dict[str, optuna.Trial] = {}
        self._ids: dict[int, int] = {}
        self.reconciled = False
        self.state = state or RegistryState(num_known=next_number(study.get_trials(deepcopy=False)))
        self._recovery = StorageRecovery(study, storage, suggest, self.state)

    @property
    def num_unfinished(self) -> int:
        """Number of trials that were asked for and are not finished."""
        return sum(not record.finished for record in self.state.records.values())

    @property
    def exhausted(self) -> bool:
        """Whether all configs of a finite space have been assigned."""
        sampler = self.sampled.sampler
        if self.state.orphans or not isinstance(sampler, ExhaustiveSampler):
            return False
        waiting = self.study.get_trials(False, (TrialState.WAITING,))
        return not waiting and sampler.exhausted(self.study)

    def reconcile(
        self,
        tune_ids: Collection[str] | None = None,
        configs: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> int | None:
        """Restore lost trials and find orphans; to be called before the first :meth:`ask`.

        Args:
            tune_ids: The trials that Tune knows, if available.
            configs: Their configs, flat.

        Returns:
            The number of trials in the study if some were sampled that the sampler does not know;
            otherwise None.
        """
        self.reconciled = True
        self._recovery.restore_trials(configs or {})
        trials = self.study.get_trials(deepcopy=False)
        unknown = self.state.adopt_orphans(trials, tune_ids)
        unknown |= self._recovery.add_missing(configs or {})
        return len(trials) if unknown else None

    def reopen_unfinished(self, tune_ids: Collection[str]) -> list[str]:
        """Mark as unfinished those of Tune's finished trials that the study has not finished.

        Returns:
            Their ids, by number.
        """
        records = [(e.number, key) for key, e in self.state.records.items() if key in tune_ids]
        unfinished = [key for number, key in sorted(records) if not self._is_finished(number)]
        for key in unfinished:
            self.state.records[key].finished = False
        return unfinished

    def ask(self, tune_id: str) -> dict[str, Any]:
        """Return ``path -> value`` for a Tune trial: an orphan's parameters, else new ones."""
        if self.state.orphans:
            return self._assign_orphan(tune_id, self.state.orphans.pop(0))
        trial = self.sampled.ask()
        self.state.num_known = max(self.state.num_known, trial.number + 1)
        self.state.records[tune_id] = TrialRecord(trial.number)
        return self._suggest_params(tune_id, trial)

    def record(self, tune_id: str) -> TrialRecord | None:
        """Return the record of a trial; None if the registry does not know it."""
        return self.state.records.get(tune_id)

    def note_last(self, tune_id: str, result: Mapping[str, Any]) -> None:
        """Record a trial's last result, flat, of which the curve has what belongs there."""
        if result and (record := self.record(tune_id)):
            record.progress.last = result

    def report(self, tune_id: str, result: Mapping[str, Any]) -> None:
        """Add a flat result to a trial's curve; a step that exists is left unchanged."""
        trial = self._trial(tune_id)
        if trial is None:
            return
        progress = self.state.records[tune_id].progress
        was_changed = progress.changed_at is not None
        has_grown = progress.add(result, self._criteria)
        with self._closing_if_finished(tune_id):
            if progress.changed_at is not None and not was_changed:
                trial.set_user_attr(CONFIG_CHANGED_AT, progress.changed_at)
            if has_grown:
                # Trial.report rejects multi-objective studies; the storage does not.
                step = max(progress.curve)
                self._storage.set_trial_intermediate_value(
                    self._id_of(trial.number), step, progress.curve[step]
                )

    def tell(
        self,
        tune_id: str,
        outcome: Outcome,
        cause: str | None = None,
        mean: Mapping[str, Any] | None = None,
    ) -> None:
        """Report an outcome to Optuna unless it is known; an interrupted trial stays RUNNING.

        ``mean`` is the result of a trial that stands for several.
        """
        trial = self._trial(tune_id)
        if trial is None or outcome is Outcome.INTERRUPTED:
            return
        end = self.state.records[tune_id].progress.end(outcome, cause, self._criteria, mean)
        with self._closing_if_finished(tune_id):
            for key, value in end.attrs.items():
                trial.set_user_attr(key, value)
            recorded = self._frozen(trial.number).constraints
            for key, violation in end.violations.items():
                if key not in recorded:
                    trial.set_constraint(key, violation)
            self.sampled.tell(trial, end.values, end.state)
        self._close(tune_id)

    @contextmanager
    def _closing_if_finished(self, tune_id: str) -> Iterator[None]:
        try:
            yield
        except UpdateFinishedTrialError:  # told by another process in the meantime
            self._close(tune_id)

    def note_changed_outcome(self, tune_id: str, outcome: Outcome) -> None:
        """Record that a finished trial ran again with another outcome, as after a kill."""
        record = self.state.records.get(tune_id)
        if record is None or not record.finished:
            return
        recorded = self._frozen(record.number).user_attrs.get(STOP_REASON)
        if recorded not in (None, outcome.value):
            self._relink(record.number, tune_id)

    def link_runs(self, run_ids: Mapping[str, str | None]) -> None:
        """Store the MLflow runs, by Tune's id, that trials do not name themselves.

        Optuna's finished trials are immutable, so the study stores them.
        """
        attrs = self.study.user_attrs
        late_ids = {}
        for trial in self.study.get_trials(deepcopy=False):
            run_id = run_ids.get(tune_trial_id(trial, attrs) or "")
            if run_id and trial.user_attrs.get(MLFLOW_RUN_ID) != run_id:
                late_ids[str(trial.number)] = run_id
        if late_ids:
            self.study.set_user_attr(LATE_RUN_IDS, {**attrs.get(LATE_RUN_IDS, {}), **late_ids})

    def abandon_orphans(self) -> None:
        """Finish the orphans that were not assigned again."""
        for number in self.state.orphans:
            self._close_orphan(number, "never resumed")
        self.state.orphans.clear()

    def close_lost_trials(self) -> None:
        """Finish trials whose outcome the study has lost, and that Tune does not know."""
        finished = {record.number for record in self.state.records.values() if record.finished}
        for number in sorted(finished):
            if not self._is_finished(number):
                self._close_orphan(number, "the storage lost its end")

    def _is_finished(self, number: int) -> bool:
        return self._frozen(number).state.is_finished()

    def _close_orphan(self, number: int, cause: str) -> None:
        """Finish a trial in Optuna that no Tune trial will finish."""
        name = f"orphan-{number}"
        self.state.records[name] = TrialRecord(number)
        self.tell(name, Outcome.OUT_OF_BUDGET, cause)
        del self.state.records[name]

    def _assign_orphan(self, tune_id: str, number: int) -> dict[str, Any]:
        """Return an orphan's parameters to a Tune trial; link the two if it is unfinished."""
        frozen = self._frozen(number)
        record = self.state.records[tune_id] = TrialRecord(
            number, finished=frozen.state.is_finished()
        )
        if record.finished:
            self._relink(number, tune_id)
            return self._suggest(FixedTrial(frozen.params, number))
        record.progress.curve |= frozen.intermediate_values
        return self._suggest_params(tune_id, optuna.Trial(self.sampled, self._id_of(number)))

    def _suggest_params(self, tune_id: str, trial: optuna.Trial) -> dict[str, Any]:
        """Sample the missing parameters of a trial."""
        self._open_trials[tune_id] = trial
        trial.set_user_attr(TUNE_TRIAL_ID, tune_id)
        try:
            return self._suggest(trial)
        except Exception as error:
            cause = f"no parameters: {type(error).__name__}: {error}"
            self.tell(tune_id, Outcome.ERROR, cause)
            raise

    def _relink(self, number: int, tune_id: str) -> None:
        tune_ids = self.study.user_attrs.get(RELINKED, {})
        self.study.set_user_attr(RELINKED, {**tune_ids, str(number): tune_id})

    def _trial(self, tune_id: str) -> optuna.Trial | None:
        """Return the live Optuna trial; None if it is unknown or finished."""
        record = self.state.records.get(tune_id)
        if record is None or record.finished:
            return None
        if tune_id not in self._open_trials:
            frozen = self._frozen(record.number)
            if frozen.state.is_finished():
                record.finished = True
                return None
            record.progress.curve |= frozen.intermediate_values
            self._open_trials[tune_id] = optuna.Trial(self.sampled, self._id_of(record.number))
        return self._open_trials[tune_id]

    def _close(self, tune_id: str) -> None:
        self.state.records[tune_id].finished = True
        self._open_trials.pop(tune_id, None)

    def _frozen(self, number: int) -> FrozenTrial:
        return self._storage.get_trial(self._id_of(number))

    def _id_of(self, number: int) -> int:
        if number not in self._ids:
            self._ids[number] = self._storage.get_trial_id_from_study_id_trial_number(
                self._study_id, number
            )
        return self._ids[number]
