"""Base of a Ray searcher over an Optuna study: opens, saves, restores and reconciles it."""

import os
import pickle
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import optuna
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial
from ray import cloudpickle
from ray.tune.search import Searcher

from tune_tf.errors import SweepConflictError
from tune_tf.result_keys import TRAINING_ITERATION
from tune_tf.searchers.criteria import SearchCriteria
from tune_tf.searchers.registry_state import RegistryState
from tune_tf.searchers.search_settings import SearchSettings, enqueue
from tune_tf.searchers.storage.study_storage import clear_storage_errors, open_storage
from tune_tf.searchers.trial_registry import TrialRegistry
from tune_tf.searchers.warm_start import ImportSummary
from tune_tf.tune_internals import controller

_SETTINGS_ATTRIBUTES: Final = frozenset(
    {"_settings", "_stop_criteria", "_max_concurrent", "_metrics_checked", "_import_summary"}
)
"""Attributes that follow from the settings and are not restored from a saved state."""


class StudySearcher(Searcher):
    """Ray searcher whose Optuna study survives pickling and a resume.

    Args:
        settings: Settings of the search.
    """

    def __init__(self, settings: SearchSettings) -> None:
        self.criteria = settings.criteria
        super().__init__(metric=self.criteria.leading.metric, mode=self.criteria.leading.mode)
        self._settings = settings
        self._sampler = settings.make_sampler()
        self._storage = open_storage(settings.storage)
        self._study_name = settings.study_name
        self._import_summary: ImportSummary | None = None
        self._registry: TrialRegistry | None = None

    @property
    def study(self) -> optuna.Study:
        """The Optuna study, for its visualizations; its trials are in their actual states."""
        return self._open().study

    def save(self, checkpoint_path: str | os.PathLike[str]) -> None:
        """Write the state that a resume needs beside the study; includes an in-memory study."""
        # Also if a subclass's `__getstate__` returns its `__dict__`.
        attributes = (self.__getstate__() | self._reopening_attributes()).items()
        state = {key: value for key, value in attributes if key not in _SETTINGS_ATTRIBUTES}
        Path(checkpoint_path).write_bytes(cloudpickle.dumps(state))

    def restore(self, checkpoint_path: str | os.PathLike[str]) -> None:
        """Restore the state that :meth:`save` wrote, with a subclass's own attributes.

        Raises:
            SweepConflictError: It was saved for other objectives, or with another study.
        """
        state = pickle.loads(Path(checkpoint_path).read_bytes())  # noqa: S301 - Tune's own state lies beside it, pickled too
        saved: SearchCriteria = state.pop("criteria")
        if saved.objectives != self.criteria.objectives:
            raise SweepConflictError(
                f"the searcher's state was saved for {SearchCriteria(saved.objectives)}; it cannot "
                f"be restored for {self.criteria}: resume with the original objective"
            )
        self._restore_state(state)
        controller.observe_stops()

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes, with what reopens the study in place of the open one."""
        return self.__dict__ | self._reopening_attributes()

    def _reopening_attributes(self) -> dict[str, Any]:
        in_memory = isinstance(self._storage, InMemoryStorage)
        return {
            "_settings": replace(self._settings, storage=None) if in_memory else self._settings,
            "_storage": self._storage if in_memory else None,
            "_registry": self._registry.state if self._registry else None,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the attributes and open the study."""
        self._settings = state["_settings"]
        self._storage = open_storage(self._settings.storage)
        self._restore_state(dict(state))

    def _restore_state(self, attributes: dict[str, Any]) -> None:
        """Restore the attributes of :meth:`__getstate__`; missing ones keep their values."""
        storage, registry_state = attributes.pop("_storage"), attributes.pop("_registry")
        if isinstance(registry_state, TrialRegistry):  # a subclass pickled its `__dict__`
            registry_state = registry_state.state
        self.__dict__.update(attributes)
        self._storage = storage or self._storage
        self._registry = None
        if registry_state is not None:
            self._open(registry_state.copy())  # a copied searcher shares it

    def _open(
        self, state: RegistryState | None = None, replayed: Sequence[FrozenTrial] = ()
    ) -> TrialRegistry:
        """Return the registry of the study's trials, which is opened on first use."""
        if self._registry is None:
            settings, storage = self._settings, self._storage
            with self._clear_errors():
                study, self._import_summary = settings.open_study(storage, self._study_name)
                study.add_trials(replayed)
                enqueue(study, settings.params)
                self._study_name = study.study_name
                sampled = settings.sampled_study(storage, study.study_name, self._sampler)
                self._registry = TrialRegistry(
                    study, storage, settings.suggest, self.criteria, state, sampled
                )
        return self._registry

    def _reconcile(self, ended: Collection[str] | None = None) -> TrialRegistry:
        """Return the registry; on first use, reconcile it with what the study and Tune know.

        Args:
            ended: The finished trials; None for those that Tune has stopped, which include trials
                that a resume continues.
        """
        registry = self._open()
        if registry.reconciled:
            return registry
        configs = controller.configs()
        if controller.is_repeated():  # Optuna knows of the first trial of each config only
            configs = {key: each for key, each in configs.items() if registry.record(key)}
        num_trials = registry.reconcile(controller.trial_ids(), configs)
        if num_trials is not None:
            self._sampler = self._settings.reseed_sampler(self._sampler, num_trials)
            registry.sampled = self._settings.sampled_study(
                self._storage, registry.study.study_name, self._sampler
            )
        if not controller.delays_completions():
            for trial_id, failed in unfinished_ends(registry, ended).items():
                self.on_trial_complete(trial_id, self._lost_result(trial_id), failed)
        registry.close_lost_trials()
        return registry

    def _lost_result(self, trial_id: str) -> dict[str, Any]:
        """Return the last result of a finished trial whose end the study has lost.

        Tune does not save that a function returned. While it runs, it stops a trial that is not
        done only where trials are paused, which is at rungs.
        """
        last = controller.last_result(trial_id)
        at_rung = last.get(TRAINING_ITERATION) in controller.rungs()
        if last and not controller.is_experiment_finished() and not at_rung:
            last["done"] = True
        return last

    def _clear_errors(self) -> AbstractContextManager[None]:
        return clear_storage_errors(self._settings.storage)


def unfinished_ends(
    registry: TrialRegistry, ended: Collection[str] | None = None
) -> dict[str, bool]:
    """Return whether Tune's finished trials failed, of those that are unfinished in the study.

    Only those in ``ended`` are looked at, if it is given.
    """
    failed = controller.finished_trials()
    finished = failed.keys() if ended is None else failed.keys() & set(ended)
    return {trial_id: failed[trial_id] for trial_id in registry.reopen_unfinished(finished)}
