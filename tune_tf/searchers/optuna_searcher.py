"""Optuna under Ray Tune, with every trial in the same state in both."""

import logging
import os
import pickle
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import optuna
from optuna.samplers import BaseSampler
from optuna.storages import InMemoryStorage
from ray.tune.search import Searcher
from ray.tune.search.variant_generator import parse_spec_vars

from tune_tf.constraint import Constraint
from tune_tf.errors import SweepConflictError
from tune_tf.objective import Objective
from tune_tf.outcome import MLFLOW_RUN_ID, Outcome, is_finite
from tune_tf.result_keys import TRAINING_ITERATION
from tune_tf.searchers.objectives import SearchObjectives
from tune_tf.searchers.registry_state import RegistryState
from tune_tf.searchers.saved_state import parts_of, pickled
from tune_tf.searchers.search_settings import SearchSettings
from tune_tf.searchers.space_adapter import GivenSpace, suggest_of
from tune_tf.searchers.storage.filtered import RungSource
from tune_tf.searchers.storage.study_storage import Storage, clear_storage_errors, open_storage
from tune_tf.searchers.trial_attrs import attrs_of, config_changed_at
from tune_tf.searchers.trial_outcome import (
    TrialOutcome,
    dropped_outcome,
    ended_outcome,
    failed_outcome,
)
from tune_tf.searchers.trial_registry import TrialRegistry
from tune_tf.searchers.warm_start.evaluated_trial import EvaluatedPoint
from tune_tf.searchers.warm_start.warm_start import ImportSummary, WarmStart
from tune_tf.space import flat, nested
from tune_tf.tune_internals import controller
from tune_tf.tune_internals.trial_ends import asks_for_more, observe_stops, run_id_of

_log = logging.getLogger(__name__)

_OF_SETTINGS: Final = frozenset(
    {"_metric", "_mode", "_settings", "_stop", "_max_concurrent", "_checked", "_taken"}
)
"""Attributes that a searcher keeps as it was made when it takes up what another one has saved."""


class OptunaSearcher(Searcher):
    """Proposes configs with an Optuna sampler, and tells Optuna how each trial really ended.

    For ``tune.run(search_alg=OptunaSearcher(...), max_concurrent_trials=...)`` with any trainable
    and any scheduler. A trial that a scheduler stopped is PRUNED and keeps its curve, one whose
    metric is NaN or Inf is FAIL, one that ran to its limit is COMPLETE; the Optuna trial's user
    attributes ``stop_reason`` and ``stop_cause`` say why, ``tune_trial_id`` and ``mlflow_run_id``
    which trial and run it is, ``epochs``, ``seconds`` and ``rung`` how far it came.

    A sweep that was killed goes on where it was: with ``tune.run(resume=...)`` and the same
    storage, trials that the study knows and Tune does not are proposed again instead of new ones.

    Set ``max_concurrent_trials``: without it Tune holds one pending trial at a time. Trials that a
    scheduler has paused do not count against it.

    Args:
        space: A :class:`tune_tf.SearchSpace`; or a define-by-run function, which asks an Optuna
            trial for parameters and returns None or a dict of constants that are added to them; or
            a dict of Optuna distributions, nested or by path. Groups are joined by ``/`` in paths.
        objective: The metric that trials report, and its direction; or several, of which the first
            is the one whose curve is kept.
        sampler: Name of a sampler, such as ``"tpe"``, or a sampler of Optuna's.
        seed: Seed of a sampler given by name.
        storage: None to keep the study in memory; a database URL such as ``sqlite:///optuna.db``;
            a journal file ending in ``.journal`` or ``.log``; or a storage of Optuna's.
        study_name: Name of the study in the storage. An existing one is gone on with.
        constraints: Bounds on reported metrics, as ``{"latency_ms": "<= 3"}`` or as
            :class:`~tune_tf.constraint.Constraint` objects.
        rungs: Returns the iterations at which the scheduler compares trials; None to ask the
            scheduler of the running sweep.
        points_to_evaluate: Configs to try first; constants may be left out.
        evaluated_rewards: What ``points_to_evaluate`` gave, one for each, if they were evaluated
            already: they are not tried again. See :meth:`add_evaluated_point`.
        warm_start_from: A sweep's folder, a study's journal file or database URL,
            ``mlflow:<experiment name>``, or a :class:`~tune_tf.searchers.WarmStart`, whose results
            the sampler is to know of; see :attr:`warm_start`.
        allow_changed_space: Whether a study may go on with another search space than before.

    Attributes:
        goals: Objectives and constraints.

    Raises:
        InvalidSettingsError: A setting is not one of those above, or the storage cannot be opened.
        SweepConflictError: The study exists with another objective or search space.
    """

    def __init__(
        self,
        space: GivenSpace,
        objective: Objective | Sequence[Objective],
        sampler: str | BaseSampler = "tpe",
        seed: int | None = None,
        storage: Storage = None,
        study_name: str | None = None,
        *,
        constraints: Mapping[str, Any] | Iterable[Constraint] | None = None,
        rungs: RungSource | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        evaluated_rewards: Sequence[float | Sequence[float]] | None = None,
        warm_start_from: str | os.PathLike[str] | WarmStart | None = None,
        allow_changed_space: bool = False,
    ) -> None:
        """Check the settings, and open the study if it has a name."""
        if warm_start_from is not None and not isinstance(warm_start_from, WarmStart):
            warm_start_from = WarmStart(warm_start_from)
        if isinstance(space, Mapping):
            space = flat(space)
        suggest_of(space)
        self._begin(
            SearchSettings(
                space,
                SearchObjectives.of(objective, constraints),
                sampler,
                seed,
                storage,
                study_name,
                rungs,
                tuple(points_to_evaluate or ()),
                tuple(evaluated_rewards or ()),
                warm_start_from,
                allow_changed_space,
            )
        )
        if unused := self._settings.unused_constraints:
            _log.warning(
                "the sampler %s makes nothing of constraints: %s will only keep trials from being "
                "the best",
                sampler,
                " and ".join(map(str, unused)),
            )
        if study_name is not None:
            self._open()

    def _begin(self, settings: SearchSettings) -> None:
        goals = settings.goals
        super().__init__(metric=goals.leading.metric, mode=goals.leading.mode)
        self.goals = goals
        self._settings = settings
        self._sampler = settings.make_sampler()
        self._storage = open_storage(settings.storage)
        self._study_name = settings.study_name
        self._stop: dict[str, Any] = {}
        self._max_concurrent: int | None = None
        self._checked = False
        self._taken: ImportSummary | None = None
        self._opened: TrialRegistry | None = None

    @property
    def study(self) -> optuna.Study:
        """Optuna's study, for its visualisations; trials in it are in the state that they have."""
        return (self._opened or self._open()).study

    @property
    def warm_start(self) -> ImportSummary | None:
        """What was taken over from earlier results; None if there are none to take."""
        self._opened or self._open()
        return self._taken

    def number_of(self, trial_id: str) -> int | None:
        """Return Optuna's number of a trial, by Tune's id; None if it does not know the trial."""
        entry = self._opened.entry(trial_id) if self._opened is not None else None
        return entry.number if entry is not None else None

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any
    ) -> bool:
        """Take what ``tune.run`` was called with.

        Returns:
            False if ``config`` has values that are to be searched: the space is given here.

        Raises:
            InvalidSettingsError: The metric or mode is not the first objective's.
        """
        self.goals.check_given(metric, mode)
        stop = spec.get("stop")
        self._stop = dict(stop) if isinstance(stop, Mapping) else {}
        _, searched, grids = parse_spec_vars(config or {})
        return not searched and not grids

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        """Take over the limit of Tune's ``ConcurrencyLimiter``, which counts paused trials too.

        Returns:
            False if the limiter is one of batches, which keeps its limit itself.
        """
        batches = controller.is_in_batches()
        self._max_concurrent = None if batches else max_concurrent
        return not batches

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Return the config of the next trial; None while as many run as may.

        ``FINISHED`` where a grid or an exhaustive search has nothing left.
        """
        observe_stops()
        with self._plainly():
            book = self._book
            limit = controller.max_concurrent(self._max_concurrent)
            if limit is not None:
                occupying = None if controller.is_repeated() else controller.num_occupying()
                if occupying is None:
                    occupying = book.num_unfinished
                if occupying >= limit:
                    return None
            if book.exhausted:
                return Searcher.FINISHED
            return nested(book.ask(trial_id))

    def on_pause(self, trial_id: str) -> None:
        """Do nothing: whether a trial is paused is seen in Tune, for every scheduler."""

    def on_unpause(self, trial_id: str) -> None:
        """Do nothing, as for :meth:`on_pause`."""

    def on_trial_result(self, trial_id: str, result: Mapping[str, Any]) -> None:
        """Add a result that the trial goes on after to its curve.

        Raises:
            UnknownMetricError: The first result of all lacks a metric.
        """
        if TRAINING_ITERATION not in result:  # a function returned that has reported nothing
            return
        self._check(result)
        iteration, changed_at = int(result[TRAINING_ITERATION]), config_changed_at(result)
        with self._plainly():
            self._book.saw(trial_id, iteration)
            lead = result.get(self.goals.leading.metric)
            if changed_at is not None:
                self._book.note_change(trial_id, changed_at)
            ours = changed_at is None or iteration <= changed_at
            if ours and lead is not None and is_finite(lead):
                values = self.goals.values(result) or (float(lead),)
                self._book.report(trial_id, iteration, values[0], values[1:])

    def on_trial_complete(
        self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False
    ) -> None:
        """Tell Optuna how a trial ended; once only, whatever Tune repeats after a resume.

        A result without an iteration is the mean of several trials of one config, as Ray's
        ``Repeater`` tells it: the Optuna trial is COMPLETE with that value. Metrics of constraints
        are those of the first of these trials.

        Raises:
            UnknownMetricError: The first result of all lacks a metric, or a mean the metric of one
                of several objectives.
        """
        # Tune hands over nothing where it stops a trial that is paused or waits.
        last = result or controller.last_result(trial_id)
        if error and self.goals.values(last if result else {}):
            error = False  # a Repeater says so of the last of its trials; there is a mean of others
        own = not error and Outcome.of_result(last) in (None, Outcome.COMPLETED, Outcome.PRUNED)
        if own and result:
            self._check(result)
        with self._plainly():
            if error:
                verdict = failed_outcome(trial_id)
            else:
                book = self._book
                entry, shown = book.entry(trial_id), book.last_shown(trial_id)
                verdict = ended_outcome(
                    trial_id, result, last, self.goals, entry, shown, self._stop
                )
            self._tell(trial_id, verdict, last)

    def finish(
        self,
        outcomes: Mapping[str, Outcome],
        results: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Tell Optuna of trials that Tune ended without a word, as it does at ``time_budget_s``.

        Args:
            outcomes: How trials ended, by Tune's id. Those that Optuna knows the end of, or does
                not know at all, are skipped; ``INTERRUPTED`` ones stay RUNNING, for a resume.
            results: Last results by Tune's id, flat, as far as they are known. MLflow's run ids
                in them are kept with the study where a trial had ended before its was known.
        """
        ended = {key: end for key, end in outcomes.items() if end is not Outcome.INTERRUPTED}
        with self._plainly():
            book = self._looked_at(ended)
            for trial_id, outcome in ended.items():
                last = (results or {}).get(trial_id, {})
                verdict = dropped_outcome(outcome, book.last_values(trial_id), self.goals)
                self._tell(trial_id, verdict, last)
                book.note_other_end(trial_id, outcome)
            book.link({key: last.get(MLFLOW_RUN_ID) for key, last in (results or {}).items()})
            if len(ended) == len(outcomes) and not asks_for_more():
                book.give_up_orphans()

    def add_evaluated_point(
        self,
        parameters: Mapping[str, Any],
        value: float | Sequence[float] | None,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: Sequence[float] | None = None,
    ) -> None:
        """Have the sampler know of a config that was evaluated elsewhere.

        Args:
            parameters: The config, nested or by path; constants may be left out.
            value: The objective's value; several in order for several objectives. With NaN or Inf
                the config counts as one that diverged.
            error: Whether the trial failed; the value is not looked at then.
            pruned: Whether it was stopped early.
            intermediate_values: The leading objective's values from the first iteration on.

        Raises:
            InvalidSettingsError: The space does not hold the config, or a value is no number.
        """
        point = EvaluatedPoint(
            parameters, value, error=error, pruned=pruned, curve=tuple(intermediate_values or ())
        )
        trial = self._settings.evaluated(point)
        with self._plainly():
            self.study.add_trial(trial)

    def save(self, checkpoint_path: str | os.PathLike[str]) -> None:
        """Write what a resume needs beside the study; an in-memory study is in it.

        Tune does so last of all when it is through with its trials, and this is all that a searcher
        sees of that: trials that Tune has stopped without a word, as at ``time_budget_s``, get
        their ends here.

        Raises:
            InvalidSettingsError: An attribute of a subclass cannot be pickled.
        """
        self._end_dropped()
        attributes, slots = parts_of(self.__getstate__())
        attributes |= self._to_reopen()  # also where a subclass returns its __dict__
        kept = {key: value for key, value in attributes.items() if key not in _OF_SETTINGS}
        Path(checkpoint_path).write_bytes(pickled((kept, slots), type(self).__name__))

    def restore(self, checkpoint_path: str | os.PathLike[str]) -> None:
        """Go on from what :meth:`save` wrote; a subclass gets its own attributes back, too.

        Raises:
            SweepConflictError: It was saved for other objectives, or with another study.
        """
        state = pickle.loads(Path(checkpoint_path).read_bytes())  # noqa: S301 - Tune's own state lies beside it, pickled too
        saved: SearchObjectives = state[0].pop("goals")
        if saved.objectives != self.goals.objectives:
            theirs = SearchObjectives(saved.objectives)
            raise SweepConflictError(
                f"the searcher's state was saved for {theirs}; it cannot go on as {self.goals}: "
                "resume with the objective it was started with"
            )
        self._take_up(*state)
        observe_stops()

    def __getstate__(self) -> Any:
        """Return all attributes, in the form of ``object``'s; the study is opened anew."""
        attributes, slots = parts_of(super().__getstate__())
        attributes |= self._to_reopen()
        return (attributes, slots) if slots else attributes

    def __setstate__(self, state: Any) -> None:
        """Take the attributes, and open the study."""
        attributes, slots = parts_of(state)
        self._settings = attributes["_settings"]
        self._storage = open_storage(self._settings.storage)
        self._take_up(attributes, slots)

    def _to_reopen(self) -> dict[str, Any]:
        """Return the attributes that stand for the study; one in memory is among them."""
        in_memory = isinstance(self._storage, InMemoryStorage)
        return {
            "_settings": self._settings.without_storage() if in_memory else self._settings,
            "_storage": self._storage if in_memory else None,
            "_opened": self._opened.page.copy() if self._opened else None,
        }

    def _take_up(self, attributes: dict[str, Any], slots: Mapping[str, Any]) -> None:
        """Take the attributes that :meth:`__getstate__` gave; those left out stay."""
        storage, page = attributes.pop("_storage"), attributes.pop("_opened")
        if isinstance(page, TrialRegistry):  # a subclass has pickled its __dict__
            page = page.page
        self.__dict__.update(attributes)
        for name, value in slots.items():
            setattr(self, name, value)
        self._storage = storage or self._storage
        self._opened = None
        if page is not None:
            self._open(page)

    def _end_dropped(self) -> None:
        """End the trials that Tune has ended without a word, once it is through with all."""
        if self._opened is None or not controller.is_over():
            return
        with self._plainly():
            book, repeated = self._opened, controller.is_repeated()
            failed = controller.ended()
            for trial_id in book.without_end(failed):
                last = controller.last_result(trial_id)
                if repeated:
                    cause = "the run ended before all of its repeats had"
                    self._tell(trial_id, TrialOutcome(Outcome.OUT_OF_BUDGET, cause=cause), {})
                else:
                    self.on_trial_complete(trial_id, last, error=failed[trial_id])
            book.give_up_orphans()

    def _tell(self, trial_id: str, verdict: TrialOutcome, last: Mapping[str, Any]) -> None:
        """Tell Optuna of an end, with what the last result says besides."""
        if TRAINING_ITERATION not in last:  # there is none, or a mean
            last = {**controller.last_result(trial_id), **last}
        violations = self.goals.violations(last) if last else {}
        run_id = run_id_of(trial_id)
        facts = attrs_of(last, self._rungs()) | ({MLFLOW_RUN_ID: run_id} if run_id else {})
        self._book.tell(trial_id, verdict, facts, violations)

    @property
    def _book(self) -> TrialRegistry:
        """The book, after a look at what the study has that the sampler does not know of."""
        return self._looked_at()

    def _looked_at(self, ended: Collection[str] | None = None) -> TrialRegistry:
        """Return the book as above.

        Args:
            ended: The trials that have ended; None for those that Tune has stopped. When it is
                interrupted these are also the ones that a resume goes on with.
        """
        book = self._opened or self._open()
        if not book.looked:
            configs = controller.configs()
            if controller.is_repeated():  # Optuna knows of the first trial of each config only
                configs = {key: each for key, each in configs.items() if book.entry(key)}
            num_trials = book.find_orphans(controller.trial_ids(), configs)
            if num_trials is not None:
                self._sampler = self._settings.renewed(self._sampler, num_trials)
                book.desk.study.sampler = self._sampler
            failed = controller.ended() if not controller.are_ends_held_back() else {}
            over = failed.keys() if ended is None else failed.keys() & set(ended)
            for trial_id in book.without_end(over):  # the storage has lost it
                last = controller.last_result(trial_id)
                # Tune does not save that a function returned. While it goes on, it stops a trial
                # that has not said that it is done only where one is paused, which is at rungs.
                if (
                    last
                    and not controller.is_over()
                    and last.get(TRAINING_ITERATION) not in self._rungs()
                ):
                    last["done"] = True
                self.on_trial_complete(trial_id, last, error=failed[trial_id])
            book.end_lost()
        return book

    def _open(self, page: RegistryState | None = None) -> TrialRegistry:
        with self._plainly():
            settings, storage = self._settings, self._storage
            study, self._taken = settings.open_study(storage, self._study_name)
            self._study_name = study.study_name
            desk = settings.desk(storage, study.study_name, self._sampler, self._rungs)
            self._opened = TrialRegistry(study, storage, settings.suggest, page, desk)
        return self._opened

    def _rungs(self) -> Sequence[int]:
        return (self._settings.rungs or controller.rungs)()

    def _plainly(self) -> AbstractContextManager[None]:
        return clear_storage_errors(self._settings.storage)

    def _check(self, result: Mapping[str, Any]) -> None:
        if TRAINING_ITERATION not in result:
            if self.goals.leading.metric in result:
                SearchObjectives(self.goals.objectives).check(result)
        elif not self._checked:
            self.goals.check(result)
            self._checked = True
