"""Ray Tune searcher that samples with Optuna and keeps trial states consistent in both."""

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from optuna.samplers import BaseSampler
from ray.tune.search import Searcher
from ray.tune.search.variant_generator import parse_spec_vars

from tune_tf.constraint import Constraint
from tune_tf.errors import InvalidSettingsError, SweepConflictError
from tune_tf.objective import Objective
from tune_tf.outcome import MLFLOW_RUN_ID, Outcome
from tune_tf.result_keys import TRAINING_ITERATION
from tune_tf.searchers.criteria import SearchCriteria
from tune_tf.searchers.earlier_trial import to_json
from tune_tf.searchers.registry_state import RegistryState, TrialRecord, next_number
from tune_tf.searchers.replay import (
    ReplayedTrial,
    frozen_trials,
    inactive_params,
    sampler_attrs,
)
from tune_tf.searchers.samplers.catalogue import needs_dense, uses_constraints
from tune_tf.searchers.search_settings import SearchSettings
from tune_tf.searchers.storage.study_storage import Storage
from tune_tf.searchers.study_searcher import StudySearcher, unfinished_ends
from tune_tf.searchers.trial_attrs import TUNE_TRIAL_ID, WARM_START
from tune_tf.searchers.trial_outcome import ended_outcome, failed_outcome
from tune_tf.searchers.trial_registry import TrialRegistry
from tune_tf.searchers.warm_start import ImportSummary, WarmStart
from tune_tf.space import SearchSpace, nest
from tune_tf.tune_internals import controller

_log = logging.getLogger(__name__)


class OptunaSearcher(StudySearcher):
    """Searcher that samples configs with Optuna and reports each trial's actual outcome to it.

    For ``tune.run(search_alg=OptunaSearcher(...), max_concurrent_trials=...)`` with any trainable
    and any scheduler. A trial stopped by a scheduler is PRUNED and keeps its curve, one whose
    metric is NaN or Inf is FAIL, one that ran to its limit is COMPLETE. The Optuna trial's user
    attributes ``stop_reason`` and ``stop_cause`` explain the outcome, ``tune_trial_id`` and
    ``mlflow_run_id`` link trial and run, ``epochs`` and ``seconds`` hold its progress.

    To continue a killed sweep, use ``tune.run(resume=...)`` with the same storage: trials that the
    study knows and Tune does not are suggested again before new ones.

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
        SweepConflictError: The study exists with another objective or search space.
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
        super().__init__(
            SearchSettings(
                space,
                SearchCriteria.of(objective, constraints),
                sampler,
                seed,
                storage,
                study_name,
                tuple(points_to_evaluate or ()),
                warm_start_from,
                sampler_arguments,
                None if earlier is None else tuple(earlier),
            )
        )
        self._stop_criteria: dict[str, Any] = {}
        self._max_concurrent: int | None = None
        self._metrics_checked = False
        if self.criteria.constraints and not uses_constraints(sampler):
            _log.warning(
                "the sampler %s ignores constraints: %s only excludes trials from being the best",
                sampler,
                " and ".join(map(str, self.criteria.constraints)),
            )
        self._noted: dict[str, Any] = {}  # attributes of the study as of the last note
        if study_name is not None:
            self._open()

    @property
    def warm_start(self) -> ImportSummary | None:
        """Summary of the imported earlier results; None without a warm start."""
        self._open()
        return self._import_summary

    @property
    def earlier(self) -> list[dict[str, Any]]:
        """The imported earlier results as plain data, in order, for a resume."""
        trials = self._open().study.get_trials(deepcopy=False)
        return [to_json(trial) for trial in trials if WARM_START in trial.user_attrs]

    def note_of(self, trial_id: str) -> dict[str, Any]:
        """Return what a sampler has noted with a trial, as plain data: more than its config.

        To be read after the trial was suggested, and passed to :meth:`replay`. Empty for the
        samplers that learn from results alone, as TPE does: CMA-ES keeps its state there.
        """
        registry = self._open()
        record = registry.record(trial_id)
        if record is None:
            return {}
        trial = registry.study.get_trials(deepcopy=False)[record.number]
        attrs = self._study_notes(registry)
        note = {
            "params": inactive_params(trial, self._settings.space),
            "system_attrs": sampler_attrs(trial),
            "study": {key: attrs[key] for key in attrs if attrs[key] != self._noted.get(key)},
        }
        self._noted = attrs
        return {key: content for key, content in note.items() if content}

    def _study_notes(self, registry: TrialRegistry) -> dict[str, Any]:
        attrs = self._storage.get_study_system_attrs(registry.study._study_id)  # noqa: SLF001
        return {key: value for key, value in attrs.items() if not key.startswith("study:")}

    def replay(self, trials: Sequence[ReplayedTrial]) -> None:
        """Make the study what it would be had these trials been suggested, reported and told.

        To be called once, before anything else, by a sweep that goes on. The sampler is reseeded
        by the number of trials, so that it does not repeat its draws.

        Args:
            trials: The trials of the sweep so far, in order of number.

        Raises:
            SweepConflictError: The study has trials of its own, or is in use.
        """
        if self._registry is not None:
            raise SweepConflictError("trials can be replayed into an unused searcher only")
        settings, criteria = self._settings, self.criteria
        replayed = [(trial, trial.progress(criteria)) for trial in trials]
        dense = needs_dense(settings.sampler)
        frozen = frozen_trials(replayed, settings.space, criteria, settings.params, dense=dense)
        registry = self._open(RegistryState(reconciled=True), frozen)
        registry.reconciled = True
        in_study = registry.study.get_trials(deepcopy=False)
        numbers = {each.user_attrs.get(TUNE_TRIAL_ID): each.number for each in in_study}
        for trial, progress in replayed:
            registry.state.records[trial.trial_id] = TrialRecord(
                numbers[trial.trial_id], progress, finished=trial.ended
            )
        registry.state.num_known = next_number(in_study)
        for trial in trials:
            self._noted |= trial.note.get("study", {})
        for key, value in self._noted.items():
            self._storage.set_study_system_attr(registry.study._study_id, key, value)  # noqa: SLF001
        if trials:
            self._metrics_checked = any(progress.last for _, progress in replayed)
            self._sampler = settings.reseed_sampler(self._sampler, len(in_study))
            registry.sampled = settings.sampled_study(
                self._storage, registry.study.study_name, self._sampler
            )

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

        Returns:
            False if the limiter works in batches and keeps its limit itself.
        """
        batches = controller.is_batched()
        self._max_concurrent = None if batches else max_concurrent
        return not batches

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Return the next trial's config; None while the concurrency limit is reached.

        ``FINISHED`` once a grid or an exhaustive search is exhausted.
        """
        controller.observe_stops()
        with self._clear_errors():
            registry = self._reconcile()
            limit = controller.max_concurrent(self._max_concurrent)
            if limit is not None and self._num_active(registry) >= limit:
                return None
            if registry.exhausted:
                return Searcher.FINISHED
            return nest(registry.ask(trial_id))

    def _num_active(self, registry: TrialRegistry) -> int:
        num_active = None if controller.is_repeated() else controller.num_active()
        return registry.num_unfinished if num_active is None else num_active

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
            self._reconcile().report(trial_id, result)

    def on_trial_complete(
        self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False
    ) -> None:
        """Report a trial's outcome to Optuna, once, even if Tune repeats it after a resume.

        A result without an iteration is the mean of several trials of one config, as passed by
        Ray's ``Repeater``. Constraint metrics are those of the first of these trials.

        Raises:
            UnknownMetricError: The first result of all, or a mean, lacks a metric.
        """
        # Tune passes no result when it stops a paused or pending trial.
        last = result or controller.last_result(trial_id)
        if error and self.criteria.values(last if result else {}):
            error = False  # a Repeater's last trial failed; there is a mean of others
        ran = not error and Outcome.of_result(last) in (None, Outcome.COMPLETED, Outcome.PRUNED)
        if ran and result:
            self._check_metrics(result)
        with self._clear_errors():
            registry = self._reconcile()
            record = registry.record(trial_id)
            seen = record.progress.iteration if record else None
            if error:
                outcome, cause = failed_outcome(trial_id)
            else:
                outcome, cause = ended_outcome(
                    trial_id, result, last, self.criteria, seen, self._stop_criteria
                )
            self._tell(trial_id, outcome, cause, result)

    def finish(
        self,
        outcomes: Mapping[str, Outcome],
        results: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Report trials to Optuna that Tune ended without notice, as at ``time_budget_s``.

        Args:
            outcomes: Outcomes by Tune's id. Trials that Optuna knows as finished, or not at all,
                are skipped; ``INTERRUPTED`` ones stay RUNNING for a resume.
            results: Known last results, flat, by Tune's id; the study stores MLflow run ids that
                came too late for their trial.
        """
        ended = {key: end for key, end in outcomes.items() if end is not Outcome.INTERRUPTED}
        results = results or {}
        with self._clear_errors():
            registry = self._reconcile(ended)
            for trial_id, outcome in ended.items():
                self._tell(trial_id, outcome, None, results.get(trial_id))
                registry.note_changed_outcome(trial_id, outcome)
            registry.link_runs({key: last.get(MLFLOW_RUN_ID) for key, last in results.items()})
            if len(ended) == len(outcomes) and not controller.asks_for_more():
                registry.abandon_orphans()

    def save(self, checkpoint_path: str | os.PathLike[str]) -> None:
        """Write the state that a resume needs; finish trials that Tune stopped without notice.

        Tune saves once more when it is done with all trials, as at ``time_budget_s``, and this is a
        searcher's only notice of that.
        """
        self._finish_dropped()
        super().save(checkpoint_path)

    def _finish_dropped(self) -> None:
        """Finish the trials that Tune ended without notice, once Tune is done with all."""
        if self._registry is None or not controller.is_experiment_finished():
            return
        with self._clear_errors():
            for trial_id, failed in unfinished_ends(self._registry).items():
                if controller.is_repeated():
                    cause = "the run ended before all of its repeats"
                    self._tell(trial_id, Outcome.OUT_OF_BUDGET, cause)
                else:
                    self.on_trial_complete(trial_id, controller.last_result(trial_id), failed)
            self._registry.abandon_orphans()

    def _tell(
        self,
        trial_id: str,
        outcome: Outcome,
        cause: str | None,
        result: Mapping[str, Any] | None = None,
    ) -> None:
        """Report an outcome to Optuna, after the last result if it is known."""
        registry, result = self._reconcile(), result or {}
        if TRAINING_ITERATION in result:
            registry.report(trial_id, result)
            registry.tell(trial_id, outcome, cause)
        else:  # none, or a mean
            registry.note_last(trial_id, controller.last_result(trial_id))
            registry.tell(trial_id, outcome, cause, result)

    def _check_metrics(self, result: Mapping[str, Any]) -> None:
        if TRAINING_ITERATION not in result:
            if self.criteria.leading.metric in result:
                SearchCriteria(self.criteria.objectives).check(result)
        elif not self._metrics_checked:
            self.criteria.check(result)
            self._metrics_checked = True
