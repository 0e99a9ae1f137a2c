"""Ray Tune searcher that samples with Optuna and keeps trial states consistent in both."""

import logging
import os
import pickle
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import optuna
from optuna.samplers import BaseSampler
from optuna.storages import InMemoryStorage
from ray import cloudpickle
from ray.tune.search import Searcher
from ray.tune.search.variant_generator import parse_spec_vars

from tune_tf.constraint import Constraint
from tune_tf.errors import InvalidSettingsError, SweepConflictError
from tune_tf.objective import Objective
from tune_tf.outcome import Outcome
from tune_tf.result_keys import TRAINING_ITERATION
from tune_tf.searchers.criteria import SearchCriteria
from tune_tf.searchers.replay import ReplayedTrial, sampler_note
from tune_tf.searchers.samplers.catalogue import uses_constraints
from tune_tf.searchers.search_settings import SearchSettings
from tune_tf.searchers.study_storage import Storage, clear_storage_errors, open_storage
from tune_tf.searchers.study_trials import StudyTrials, TrialRecord
from tune_tf.searchers.trial_attrs import TUNE_TRIAL_ID
from tune_tf.searchers.trial_outcome import ended_outcome, failed_outcome
from tune_tf.searchers.trial_progress import TrialProgress
from tune_tf.searchers.warm_start import ImportSummary, WarmStart
from tune_tf.space import SearchSpace, nest
from tune_tf.tune_internals import controller

_log = logging.getLogger(__name__)

_NOT_SAVED: Final = frozenset(
    {"_settings", "_stop_criteria", "_max_concurrent", "_import_summary", "_trials"}
)
"""Attributes that follow from the settings, and are not restored from a saved state."""


class OptunaSearcher(Searcher):
    """Searcher that samples configs with Optuna and reports each trial's actual outcome to it.

    For ``tune.run(search_alg=OptunaSearcher(...), max_concurrent_trials=...)`` with any trainable
    and any scheduler. A trial stopped by a scheduler is PRUNED and keeps its curve, one whose
    metric is NaN or Inf is FAIL, one that ran to its limit is COMPLETE. The Optuna trial's user
    attributes ``stop_reason`` and ``stop_cause`` explain the outcome, ``tune_trial_id`` and
    ``mlflow_run_id`` link trial and run, ``epochs`` and ``seconds`` hold its progress.

    A run that is resumed by Tune goes on with its trials. In a named storage, those that Tune does
    not know any more stay RUNNING, as Optuna leaves them.

    Set ``max_concurrent_trials``: without it Tune keeps one pending trial at a time. Trials paused
    by a scheduler do not count against it.

    Args:
        space: The search space.
        objective: The metric that trials report, with its direction; or several, of which the
            first is the one whose curve is stored.
        sampler: Name of a sampler, such as ``"tpe"``, or of a class of Optuna; or an Optuna
            sampler.
        seed: Seed of a sampler given by name.
        storage: None to keep the study in memory; a database URL such as ``sqlite:///optuna.db``;
            a journal file ending in ``.journal`` or ``.log``; or an Optuna storage.
        study_name: Name of the study in the storage. An existing study is continued.
        constraints: Bounds on reported metrics, as ``{"latency_ms": "<= 3"}`` or as
            :class:`~tune_tf.constraint.Constraint` objects.
        points_to_evaluate: Configs to try first; constants may be left out.
        warm_start_from: Earlier results for the sampler: a sweep's folder, a study's journal file
            or database URL, ``mlflow:<experiment name>``, or a
            :class:`~tune_tf.searchers.WarmStart`; see :attr:`warm_start`.
        sampler_arguments: Arguments of Optuna's class, of a sampler given by name.
        earlier: What :attr:`earlier` was when the sweep began, in place of ``warm_start_from``.

    Raises:
        InvalidSettingsError: A setting is not one of those above, or the storage cannot be opened.
        SweepConflictError: The study exists with other objectives.
    """

    def __init__(
        self,
        space: SearchSpace,
        objective: Objective | Sequence[Objective],
        sampler: str | BaseSampler = "tpe",
        seed: int | None = None,
        storage: Storage = None,
        study_name: str | None = None,
        *,
        constraints: Mapping[str, Any] | Iterable[Constraint] | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        warm_start_from: str | os.PathLike[str] | WarmStart | None = None,
        sampler_arguments: Mapping[str, Any] | None = None,
        earlier: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Validate the settings, and open the study if it has a name."""
        if warm_start_from is not None and not isinstance(warm_start_from, WarmStart):
            warm_start_from = WarmStart(warm_start_from)
        if not isinstance(space, SearchSpace):
            raise InvalidSettingsError(
                f"space must be a SearchSpace, not {type(space).__name__}; SearchSpace.from_ray "
                "makes one of Ray's domains"
            )
        self.criteria = SearchCriteria.of(objective, constraints)
        super().__init__(metric=self.criteria.leading.metric, mode=self.criteria.leading.mode)
        self._settings = SearchSettings(
            space,
            self.criteria,
            sampler,
            seed,
            storage,
            study_name,
            tuple(points_to_evaluate or ()),
            warm_start_from,
            sampler_arguments,
            None if earlier is None else tuple(earlier),
        )
        self._sampler = self._settings.make_sampler()
        self._storage = open_storage(storage)
        self._study_name = study_name
        self._records: dict[str, TrialRecord] = {}
        self._trials: StudyTrials | None = None
        self._import_summary: ImportSummary | None = None
        self._stop_criteria: dict[str, Any] = {}
        self._max_concurrent: int | None = None
        self._metrics_checked = False
        self._noted: dict[str, Any] = {}  # attributes of the study as of the last note
        if self.criteria.constraints and not uses_constraints(sampler):
            _log.warning(
                "the sampler %s ignores constraints: %s only excludes trials from being the best",
                sampler,
                " and ".join(map(str, self.criteria.constraints)),
            )
        if storage is not None:
            self._open()

    @property
    def study(self) -> optuna.Study:
        """The Optuna study, for its visualizations; its trials are in their actual states."""
        return self._open().study

    @property
    def warm_start(self) -> ImportSummary | None:
        """Summary of the imported earlier results; None without a warm start."""
        self._open()
        return self._import_summary

    @property
    def earlier(self) -> list[dict[str, Any]]:
        """The imported earlier results as plain data, in order, for a resume."""
        return [asdict(trial) for trial in self.warm_start.trials] if self.warm_start else []

    def note_of(self, trial_id: str) -> dict[str, Any]:
        """Return what a sampler has noted with a trial, as plain data: more than its config.

        To be read after the trial was suggested, and passed to :meth:`replay`. Empty for the
        samplers that learn from results alone, as TPE does: CMA-ES keeps its state there.
        """
        trial = self._open().frozen(trial_id)
        if trial is None:
            return {}
        attrs = self._storage.get_study_system_attrs(self._study_id)
        new = {key: value for key, value in attrs.items() if value != self._noted.get(key)}
        self._noted = attrs
        return sampler_note(trial, self._settings.space, new)

    def replay(self, trials: Sequence[ReplayedTrial]) -> None:
        """Make the study what it would be had these trials been suggested, reported and told.

        To be called once, before anything else, by a sweep that goes on. The sampler is reseeded
        by the number of trials, so that it does not repeat its draws.

        Args:
            trials: The trials of the sweep so far, in order of number.

        Raises:
            SweepConflictError: The searcher has been used.
        """
        if self._trials is not None:
            raise SweepConflictError("trials can be replayed into an unused searcher only")
        replayed = [(trial, trial.progress(self.criteria)) for trial in trials]
        in_study = self._open(replayed).study.get_trials(deepcopy=False)
        numbers = {each.user_attrs.get(TUNE_TRIAL_ID): each.number for each in in_study}
        for trial, progress in replayed:
            record = TrialRecord(numbers[trial.trial_id], ended=trial.ended)
            if not trial.ended:
                record.progress = progress
            self._records[trial.trial_id] = record
            self._noted |= trial.note.get("study", {})
            self._metrics_checked |= bool(progress.last)
        for key, value in self._noted.items():
            self._storage.set_study_system_attr(self._study_id, key, value)

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any
    ) -> bool:
        """Accept the arguments of ``tune.run``, except values to be searched in ``config``.

        Raises:
            InvalidSettingsError: The metric or mode is not the first objective's.
        """
        self.criteria.leading.check_given(metric, mode, "searcher")
        stop = spec.get("stop")
        self._stop_criteria = dict(stop) if isinstance(stop, Mapping) else {}
        _, searched, grids = parse_spec_vars(config or {})
        return not searched and not grids

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        """Take over the limit of Tune's ``ConcurrencyLimiter``, which counts paused trials too.

        So one with ``batch=True`` does not wait for the whole batch.
        """
        self._max_concurrent = max_concurrent
        return True

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Return the next trial's config; None while the concurrency limit is reached.

        ``FINISHED`` once a grid or an exhaustive search is exhausted.
        """
        controller.observe_stops()
        trials = self._open()
        limit = self._max_concurrent
        if limit is not None and self._num_active(trials) >= limit:
            return None
        with self._clear_errors():
            return Searcher.FINISHED if trials.exhausted else nest(trials.ask(trial_id))

    def _num_active(self, trials: StudyTrials) -> int:
        num_active = None if controller.is_repeated() else controller.num_active()
        return trials.num_unfinished if num_active is None else num_active

    def on_pause(self, trial_id: str) -> None:
        """Do nothing: paused trials are looked up in Tune, for every scheduler."""

    def on_unpause(self, trial_id: str) -> None:
        """Do nothing, as for :meth:`on_pause`."""

    def on_trial_result(self, trial_id: str, result: Mapping[str, Any]) -> None:
        """Add an intermediate result to the trial's curve.

        Raises:
            UnknownMetricError: The first result of all lacks a metric.
        """
        if TRAINING_ITERATION not in result:  # a function returned without reporting
            return
        self._check_metrics(result)
        with self._clear_errors():
            self._open().report(trial_id, result)

    def on_trial_complete(
        self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False
    ) -> None:
        """Tell Optuna a trial's outcome, once.

        A result without an iteration is the mean of several trials of one config, as passed by
        Ray's ``Repeater``. Constraint metrics are those of the first of these trials.

        Raises:
            UnknownMetricError: The first result of all, or a mean, lacks a metric.
        """
        # Tune passes no result when it stops a paused or pending trial.
        last = result or controller.last_result(trial_id)
        if error and result and self.criteria.values(result):
            error = False  # a Repeater's last trial failed; there is a mean of others
        ran = not error and Outcome.of_result(last) in (None, Outcome.COMPLETED, Outcome.PRUNED)
        if ran and result:
            self._check_metrics(result)
        record = self._open().record(trial_id)
        if error:
            outcome, cause = failed_outcome(trial_id)
        else:
            seen = record.progress.iteration if record else None
            outcome, cause = ended_outcome(
                trial_id, result, last, self.criteria, seen, self._stop_criteria
            )
        self._tell(trial_id, outcome, cause, result)

    def finish(self, outcomes: Mapping[str, Outcome]) -> None:
        """Tell Optuna the outcomes, by Tune's id, of trials that Tune ended without notice.

        Trials whose outcome Optuna knows are skipped; ``INTERRUPTED`` ones stay RUNNING.
        """
        for trial_id, outcome in outcomes.items():
            self._tell(trial_id, outcome, None)

    def _tell(
        self,
        trial_id: str,
        outcome: Outcome,
        cause: str | None,
        result: Mapping[str, Any] | None = None,
    ) -> None:
        """Tell Optuna an outcome, after the last result if it is known."""
        trials, result = self._open(), result or {}
        with self._clear_errors():
            if TRAINING_ITERATION in result:
                trials.report(trial_id, result)
                trials.tell(trial_id, outcome, cause)
            else:  # none, or a mean
                trials.note_last(trial_id, controller.last_result(trial_id))
                trials.tell(trial_id, outcome, cause, result)

    def save(self, checkpoint_path: str | os.PathLike[str]) -> None:
        """Write the state that a resume by Tune needs; includes a study in memory.

        Tune saves once more when it is done with all trials, as at ``time_budget_s``, which is the
        only notice of the end of those that it stops then.
        """
        if self._records and controller.is_experiment_finished():
            failed = controller.finished_trials()
            for trial_id in [key for key, each in self._records.items() if not each.ended]:
                if controller.is_repeated():
                    cause = "the run ended before all of its repeats"
                    self._tell(trial_id, Outcome.OUT_OF_BUDGET, cause)
                elif trial_id in failed:
                    last = controller.last_result(trial_id)
                    self.on_trial_complete(trial_id, last, failed[trial_id])
        state = {key: value for key, value in self.__dict__.items() if key not in _NOT_SAVED}
        if not isinstance(self._storage, InMemoryStorage):
            del state["_storage"]
        Path(checkpoint_path).write_bytes(cloudpickle.dumps(state))

    def restore(self, checkpoint_path: str | os.PathLike[str]) -> None:
        """Restore the state that :meth:`save` wrote, with a subclass's own attributes.

        Raises:
            SweepConflictError: It was saved for other objectives.
        """
        state = pickle.loads(Path(checkpoint_path).read_bytes())  # noqa: S301 - Tune's own state lies beside it, pickled too
        saved: SearchCriteria = state.pop("criteria")
        if saved.objectives != self.criteria.objectives:
            raise SweepConflictError(
                f"the searcher's state was saved for {SearchCriteria(saved.objectives)}; it cannot "
                f"be restored for {self.criteria}: resume with the original objective"
            )
        self.__dict__.update(state)
        self._trials = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes but the open study, which is opened again."""
        return self.__dict__ | {"_trials": None}

    @property
    def _study_id(self) -> int:
        return self._storage.get_study_id_from_name(self._open().study.study_name)

    def _open(self, replayed: Sequence[tuple[ReplayedTrial, TrialProgress]] = ()) -> StudyTrials:
        """Return the study's trials; it is opened on first use."""
        if self._trials is None:
            settings, storage = self._settings, self._storage
            with self._clear_errors():
                study, summary = settings.open_study(storage, self._study_name, replayed)
                known = study.get_trials(deepcopy=False)
                if not self._records and any(TUNE_TRIAL_ID in it.user_attrs for it in known):
                    self._sampler = settings.make_sampler(len(known))
                sampled = settings.sampled_study(study, storage, self._sampler)
                self._trials = StudyTrials(
                    study, storage, sampled, settings.suggest, self.criteria, self._records
                )
            self._study_name, self._import_summary = study.study_name, summary
        return self._trials

    def _clear_errors(self) -> AbstractContextManager[None]:
        return clear_storage_errors(self._settings.storage)

    def _check_metrics(self, result: Mapping[str, Any]) -> None:
        if TRAINING_ITERATION not in result:
            if self.criteria.leading.metric in result:
                SearchCriteria(self.criteria.objectives).check(result)
        elif not self._metrics_checked:
            self.criteria.check(result)
            self._metrics_checked = True
