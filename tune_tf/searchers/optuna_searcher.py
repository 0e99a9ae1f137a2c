"""Optuna under Ray Tune, with every trial in the same state in both."""

import logging
import os
import pickle
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import optuna
from optuna.samplers import BaseSampler
from optuna.storages import InMemoryStorage
from ray.tune.search import Searcher
from ray.tune.search.variant_generator import parse_spec_vars

from tune_tf.constraint import Constraint
from tune_tf.errors import SweepConflictError
from tune_tf.objective import Objective
from tune_tf.outcome import MLFLOW_RUN_ID, Outcome, is_finite
from tune_tf.searchers import witness
from tune_tf.searchers.book import TrialBook
from tune_tf.searchers.facts import changed, facts_of
from tune_tf.searchers.goals import Goals
from tune_tf.searchers.page import Page
from tune_tf.searchers.settings import SearchSettings
from tune_tf.searchers.shown import Rungs
from tune_tf.searchers.storages import Storage, open_storage, told_plainly
from tune_tf.searchers.suggestions import GivenSpace, suggest_of
from tune_tf.searchers.trial_end import ending, failure
from tune_tf.searchers.verdict import TIME, dropped
from tune_tf.searchers.warm_start import Taken, WarmStart
from tune_tf.space import nested
from tune_tf.tune_internals import observe_stops, run_id_of

_log = logging.getLogger(__name__)


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
        space: A :class:`tune_tf.SearchSpace`; or a callable that takes an Optuna trial and returns
            ``path -> value``; or a dict of Optuna distributions by path. Groups are joined by
            ``/`` in paths.
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
        rungs: Rungs | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        warm_start_from: str | os.PathLike[str] | WarmStart | None = None,
        allow_changed_space: bool = False,
    ) -> None:
        """Check the settings, and open the study if it has a name."""
        if warm_start_from is not None and not isinstance(warm_start_from, WarmStart):
            warm_start_from = WarmStart(warm_start_from)
        suggest_of(space)
        self._begin(
            SearchSettings(
                space,
                Goals.of(objective, constraints),
                sampler,
                seed,
                storage,
                study_name,
                rungs,
                tuple(points_to_evaluate or ()),
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
        self._taken: Taken | None = None
        self._opened: TrialBook | None = None

    @property
    def study(self) -> optuna.Study:
        """Optuna's study, for its visualisations; trials in it are in the state that they have."""
        return (self._opened or self._open()).study

    @property
    def warm_start(self) -> Taken | None:
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
        """Take over the limit of Tune's ``ConcurrencyLimiter``, which counts paused trials too."""
        self._max_concurrent = max_concurrent
        return True

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Return the config of the next trial; None while as many run as may.

        ``FINISHED`` where a grid or an exhaustive search has nothing left.
        """
        observe_stops()
        with self._plainly():
            book = self._book
            if self._max_concurrent is not None:
                occupying = witness.num_occupying()
                if occupying is None:
                    occupying = book.num_unfinished
                if occupying >= self._max_concurrent:
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
        self._check(result)
        iteration, changed_at = int(result[TIME]), changed(result)
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

        Raises:
            UnknownMetricError: The first result of all lacks a metric.
        """
        # Tune hands over nothing where it stops a trial that is paused or waits.
        last = result or witness.last_result(trial_id)
        own = not error and Outcome.of_result(last) in (None, Outcome.COMPLETED, Outcome.PRUNED)
        if own and result and TIME in result:
            self._check(result)
        with self._plainly():
            if error:
                verdict = failure(trial_id)
            else:
                entry = self._book.entry(trial_id)
                verdict = ending(trial_id, result, last, self.goals, entry, self._stop)
            run_id = run_id_of(trial_id)
            self._book.tell(
                trial_id,
                verdict,
                facts_of(last, self._rungs()) | ({MLFLOW_RUN_ID: run_id} if run_id else {}),
                self.goals.violations(last) if last else {},
            )

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
        with self._plainly():
            for trial_id, outcome in outcomes.items():
                last = (results or {}).get(trial_id, {})
                verdict = dropped(outcome, self._book.last_values(trial_id), self.goals)
                violations = self.goals.violations(last) if last else {}
                self._book.tell(trial_id, verdict, facts_of(last, self._rungs()), violations)
            self._book.link({key: last.get(MLFLOW_RUN_ID) for key, last in (results or {}).items()})
            if Outcome.INTERRUPTED not in outcomes.values():
                self._book.give_up_orphans()

    def save(self, checkpoint_path: str | os.PathLike[str]) -> None:
        """Write what a resume needs beside the study; an in-memory study is in it."""
        Path(checkpoint_path).write_bytes(pickle.dumps(self._snapshot()))

    def restore(self, checkpoint_path: str | os.PathLike[str]) -> None:
        """Go on from what :meth:`save` wrote.

        Raises:
            SweepConflictError: It was saved for other objectives, or with another study.
        """
        self._restore(pickle.loads(Path(checkpoint_path).read_bytes()))  # noqa: S301 - Tune's own state lies beside it, pickled too

    def __getstate__(self) -> dict[str, Any]:
        """Pickle by settings and snapshot: the study is opened anew."""
        in_memory = isinstance(self._storage, InMemoryStorage)
        return {
            "settings": self._settings.without_storage() if in_memory else self._settings,
            "snapshot": self._snapshot(),
            "stop": self._stop,
            "max_concurrent": self._max_concurrent,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make the searcher from its settings and go on from the snapshot."""
        self._begin(state["settings"])
        self._stop, self._max_concurrent = state["stop"], state["max_concurrent"]
        self._restore(state["snapshot"])

    @property
    def _book(self) -> TrialBook:
        """The book, after a look at what the study has that the sampler does not know of."""
        book = self._opened or self._open()
        if not book.looked:
            num_trials = book.find_orphans(witness.trial_ids(), witness.configs())
            if num_trials is not None:
                self._sampler = self._settings.renewed(self._sampler, num_trials)
                book.desk.study.sampler = self._sampler
            failed = witness.ended()
            for trial_id in book.without_end(failed):  # the storage has lost it
                last = witness.last_result(trial_id)
                self.on_trial_complete(trial_id, last, error=failed[trial_id])
            book.end_lost()
        return book

    def _open(self, page: Page | None = None) -> TrialBook:
        with self._plainly():
            settings, storage = self._settings, self._storage
            study, self._taken = settings.open_study(storage, self._study_name)
            self._study_name = study.study_name
            desk = settings.desk(storage, study.study_name, self._sampler, self._rungs)
            self._opened = TrialBook(study, storage, settings.suggest, page, desk)
        return self._opened

    def _rungs(self) -> Sequence[int]:
        return (self._settings.rungs or witness.rungs)()

    def _plainly(self) -> AbstractContextManager[None]:
        return told_plainly(self._settings.storage)

    def _check(self, result: Mapping[str, Any]) -> None:
        if not self._checked:
            self.goals.check(result)
            self._checked = True

    def _snapshot(self) -> dict[str, Any]:
        in_memory = isinstance(self._storage, InMemoryStorage)
        return {
            "objectives": self.goals.objectives,
            "study_name": self._study_name,
            "sampler": self._sampler,
            "page": self._opened.page.copy() if self._opened else None,
            "storage": self._storage if in_memory else None,
        }

    def _restore(self, snapshot: Mapping[str, Any]) -> None:
        if snapshot["objectives"] != self.goals.objectives:
            theirs = Goals(snapshot["objectives"])
            raise SweepConflictError(
                f"the searcher's state was saved for {theirs}; it cannot go on as {self.goals}: "
                "resume with the objective it was started with"
            )
        self._sampler = snapshot["sampler"]
        self._storage = snapshot["storage"] or self._storage
        self._study_name = snapshot["study_name"]
        self._opened = None
        if snapshot["page"] is not None:
            self._open(snapshot["page"])
