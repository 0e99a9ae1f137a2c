"""Optuna under Ray Tune, with every trial in the same state in both."""

import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.storages import InMemoryStorage
from ray.tune.search import Searcher
from ray.tune.search.variant_generator import parse_spec_vars

from tune_tf.errors import InvalidSettingsError, SweepConflictError
from tune_tf.objective import Objective
from tune_tf.outcome import Outcome, is_finite
from tune_tf.searchers import witness
from tune_tf.searchers.book import Page, TrialBook
from tune_tf.searchers.samplers import make_sampler, renewed
from tune_tf.searchers.storages import Storage, open_storage, open_study
from tune_tf.searchers.suggestions import Space, Suggest, has_categoricals, suggest_of
from tune_tf.searchers.verdict import TIME, Verdict, judge
from tune_tf.space import nested


class OptunaSearcher(Searcher):
    """Proposes configs with an Optuna sampler, and tells Optuna how each trial really ended.

    For ``tune.run(search_alg=OptunaSearcher(...), max_concurrent_trials=...)`` with any trainable
    and any scheduler. A trial that a scheduler stopped is PRUNED and keeps its curve, one whose
    metric is NaN or Inf is FAIL, one that ran to its limit is COMPLETE; the Optuna trial's user
    attributes ``stop_reason`` and ``stop_cause`` say why, ``tune_trial_id`` which Tune trial it is.

    A sweep that was killed goes on where it was: with ``tune.run(resume=...)`` and the same
    storage, trials that the study knows and Tune does not are proposed again instead of new ones.

    Set ``max_concurrent_trials``: without it Tune holds one pending trial at a time.

    Args:
        space: A :class:`tune_tf.SearchSpace`; or a callable that takes an Optuna trial and returns
            ``path -> value``; or a dict of Optuna distributions by path. Groups are joined by
            ``/`` in paths.
        objective: The metric that trials report, and its direction.
        sampler: ``"tpe"``, ``"random"`` or a sampler of Optuna's.
        seed: Seed of a sampler given by name.
        storage: None to keep the study in memory; a database URL such as ``sqlite:///optuna.db``;
            a journal file ending in ``.journal`` or ``.log``; or a storage of Optuna's.
        study_name: Name of the study in the storage. An existing one is gone on with.

    Raises:
        InvalidSettingsError: A setting is not one of those above, or the storage cannot be opened.
        SweepConflictError: The study exists and optimises in another direction.
    """

    def __init__(
        self,
        space: Space | Suggest | Mapping[str, BaseDistribution],
        objective: Objective,
        sampler: str | BaseSampler = "tpe",
        seed: int | None = None,
        storage: Storage = None,
        study_name: str | None = None,
    ) -> None:
        """Check the settings, and open the study if it has a name."""
        super().__init__(metric=objective.metric, mode=objective.mode)
        self.objective = objective
        self._settings = (space, objective, sampler, seed, storage, study_name)
        self._suggest = suggest_of(space)
        self._categoricals = has_categoricals(space)
        self._sampler = make_sampler(sampler, seed, categoricals=self._categoricals)
        self._storage = open_storage(storage)
        self._study_name = study_name
        self._stop: dict[str, Any] = {}
        self._opened: TrialBook | None = None
        if study_name is not None:
            self._open()

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any
    ) -> bool:
        """Take what ``tune.run`` was called with.

        Returns:
            False if ``config`` has values that are to be searched: the space is given here.

        Raises:
            InvalidSettingsError: The metric or mode is not the objective's.
        """
        ours = self.objective
        if (metric or ours.metric) != ours.metric or (mode or ours.mode) != ours.mode:
            raise InvalidSettingsError(
                [
                    (
                        f"tune.run was given metric={metric!r}, mode={mode!r}, but the searcher "
                        f"was made for metric={ours.metric!r}, mode={ours.mode!r}; leave them out "
                        "of tune.run"
                    )
                ]
            )
        stop = spec.get("stop")
        self._stop = dict(stop) if isinstance(stop, Mapping) else {}
        _, searched, grids = parse_spec_vars(config or {})
        return not searched and not grids

    def suggest(self, trial_id: str) -> dict[str, Any]:
        """Return the config of the next trial."""
        return nested(self._book.ask(trial_id))

    def on_trial_result(self, trial_id: str, result: Mapping[str, Any]) -> None:
        """Add a result that the trial goes on after to its curve."""
        value, iteration = result.get(self.objective.metric), int(result[TIME])
        self._book.saw(trial_id, iteration)
        if value is not None and is_finite(value):
            self._book.report(trial_id, iteration, float(value))

    def on_trial_complete(
        self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False
    ) -> None:
        """Tell Optuna how a trial ended; once only, whatever Tune repeats after a resume."""
        if error:
            text = witness.error_text(trial_id)
            cause = witness.last_line(text) or "the trial failed; Tune keeps its error file"
            verdict = Verdict(Outcome.of_error(text), cause=cause)
        else:
            verdict = judge(
                result,
                self.objective,
                last_seen=self._book.last_seen(trial_id),
                own_end=lambda last: witness.own_end(trial_id, last, self._stop),
            )
        self._book.tell(trial_id, verdict)

    def finish(self, outcomes: Mapping[str, Outcome]) -> None:
        """Tell Optuna of trials that Tune ended without a word, as it does at ``time_budget_s``.

        Args:
            outcomes: How trials ended, by Tune's id. Those that Optuna knows the end of, or does
                not know at all, are skipped; ``INTERRUPTED`` ones stay RUNNING, for a resume.
        """
        for trial_id, outcome in outcomes.items():
            value = self._book.last_value(trial_id)
            if outcome is Outcome.COMPLETED and value is None:
                verdict = Verdict(Outcome.DIVERGED, cause=f"{self.objective.metric} was not told")
            else:
                verdict = Verdict(outcome, value)
            self._book.tell(trial_id, verdict)
        if Outcome.INTERRUPTED not in outcomes.values():
            self._book.give_up_orphans()

    def save(self, checkpoint_path: str | os.PathLike[str]) -> None:
        """Write what a resume needs beside the study; an in-memory study is in it."""
        Path(checkpoint_path).write_bytes(pickle.dumps(self._snapshot()))

    def restore(self, checkpoint_path: str | os.PathLike[str]) -> None:
        """Go on from what :meth:`save` wrote.

        Raises:
            SweepConflictError: It was saved for another objective, or with another study.
        """
        self._restore(pickle.loads(Path(checkpoint_path).read_bytes()))  # noqa: S301 - Tune's own state lies beside it, pickled too

    def __getstate__(self) -> dict[str, Any]:
        """Pickle by settings and snapshot: the study is opened anew."""
        *settings, storage, study_name = self._settings
        in_memory = isinstance(self._storage, InMemoryStorage)
        kept = (*settings, None if in_memory else storage, study_name)
        return {"settings": kept, "snapshot": self._snapshot(), "stop": self._stop}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make the searcher from its settings and go on from the snapshot."""
        space, objective, sampler, seed, storage, study_name = state["settings"]
        self.__init__(space, objective, sampler, seed, storage)  # type: ignore[misc]
        self._settings = (space, objective, sampler, seed, storage, study_name)
        self._stop = state["stop"]
        self._restore(state["snapshot"])

    @property
    def _book(self) -> TrialBook:
        """The book, after a look at what the study has that the sampler does not know of."""
        book = self._opened or self._open()
        if not book.looked:
            num_trials = book.find_orphans(witness.trial_ids())
            if num_trials is not None:
                _, _, sampler, seed, _, _ = self._settings
                self._sampler = book.study.sampler = renewed(
                    self._sampler, sampler, seed, num_trials, categoricals=self._categoricals
                )
        return book

    def _open(self, page: Page | None = None) -> TrialBook:
        study = open_study(self._storage, self._study_name, self.objective)
        study.sampler = self._sampler
        self._study_name = study.study_name
        self._opened = TrialBook(study, self._storage, self._suggest, page)
        return self._opened

    def _snapshot(self) -> dict[str, Any]:
        in_memory = isinstance(self._storage, InMemoryStorage)
        return {
            "objective": self.objective,
            "study_name": self._study_name,
            "sampler": self._sampler,
            "page": self._opened.page.copy() if self._opened else None,
            "storage": self._storage if in_memory else None,
        }

    def _restore(self, snapshot: Mapping[str, Any]) -> None:
        if snapshot["objective"] != self.objective:
            theirs, ours = snapshot["objective"], self.objective
            raise SweepConflictError(
                f"the searcher's state was saved for {theirs.mode} {theirs.metric!r}; it cannot go "
                f"on as {ours.mode} {ours.metric!r}: resume with the objective it was started with"
            )
        self._sampler = snapshot["sampler"]
        self._storage = snapshot["storage"] or self._storage
        self._study_name = snapshot["study_name"]
        self._opened = None
        if snapshot["page"] is not None:
            self._open(snapshot["page"])
