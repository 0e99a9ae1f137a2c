"""Optuna storage that keeps new trials in memory, over another storage."""

import abc
import copy
from collections.abc import Callable, Container, Sequence
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState, create_trial


def forward_to(attribute: str, name: str) -> Callable[..., Any]:
    """Return a method that calls the method ``name`` of an attribute of its object."""

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(getattr(self, attribute), name)(*args, **kwargs)

    return forward


class ForwardingStorage(BaseStorage):
    """Base of storages that pass every call that they do not change to another storage.

    The forwarding methods are set below, so a type checker takes subclasses for abstract.
    """

    def __init__(self, storage: BaseStorage) -> None:
        self._storage = storage


for _name in {
    *BaseStorage.__abstractmethods__,
    "get_best_trial",
    "get_n_trials",
    "get_trial_id_from_study_id_trial_number",
    "remove_session",
}:
    setattr(ForwardingStorage, _name, forward_to("_storage", _name))
abc.update_abstractmethods(ForwardingStorage)  # type: ignore[type-abstract]


class OverlayStorage(ForwardingStorage):
    """Optuna storage that keeps new trials in memory only, over another storage.

    Existing trials are read from the underlying storage, and attributes of a study are written to
    it. New trials are gone with this object or with :meth:`forget`; their cost does not depend on
    the number of existing trials.
    """

    def __init__(self, storage: BaseStorage) -> None:
        super().__init__(storage)
        self._drafts: dict[int, tuple[int, FrozenTrial]] = {}  # study and trial, by trial id

    @property
    def drafts(self) -> list[FrozenTrial]:
        """The new trials, in the order in which they were created."""
        return [draft for _, draft in self._drafts.values()]

    def forget(self) -> None:
        """Discard the new trials, so that numbering starts over."""
        self._drafts.clear()

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        """Create a trial in memory, with an id that no stored trial can have."""
        trial_id = -1 - len(self._drafts)
        template = template_trial or create_trial(state=TrialState.RUNNING)
        self._drafts[trial_id] = (
            study_id,
            FrozenTrial(
                number=self._storage.get_n_trials(study_id) + len(self._drafts_of(study_id)),
                trial_id=trial_id,
                state=template.state,
                value=None,
                values=template.values,
                datetime_start=template.datetime_start,
                datetime_complete=template.datetime_complete,
                params=dict(template.params),
                distributions=dict(template.distributions),
                user_attrs=dict(template.user_attrs),
                system_attrs=dict(template.system_attrs),
                intermediate_values=dict(template.intermediate_values),
            ),
        )
        return trial_id

    def set_trial_param(
        self,
        trial_id: int,
        param_name: str,
        param_value_internal: float,
        distribution: BaseDistribution,
    ) -> None:
        """Set a new trial's parameter."""
        draft = self._replace_draft(trial_id)
        value = distribution.to_external_repr(param_value_internal)
        draft.params = {**draft.params, param_name: value}
        draft.distributions = {**draft.distributions, param_name: distribution}

    def set_trial_state_values(
        self, trial_id: int, state: TrialState, values: Sequence[float] | None = None
    ) -> bool:
        """Set a new trial's state; return False if it was to become RUNNING and is already."""
        draft = self._replace_draft(trial_id)
        if state is TrialState.RUNNING and draft.state is not TrialState.WAITING:
            return False
        draft.state = state
        if values is not None:
            draft.values = list(values)
        return True

    def set_trial_user_attr(self, trial_id: int, key: str, value: Any) -> None:
        """Set a user attribute of a new trial."""
        draft = self._replace_draft(trial_id)
        draft.user_attrs = {**draft.user_attrs, key: value}

    def set_trial_intermediate_value(
        self, trial_id: int, step: int, intermediate_value: float
    ) -> None:
        """Set a value of a new trial's curve."""
        draft = self._replace_draft(trial_id)
        draft.intermediate_values = {**draft.intermediate_values, step: intermediate_value}

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        """Set a system attribute of a new trial."""
        draft = self._replace_draft(trial_id)
        draft.system_attrs = {**draft.system_attrs, key: value}

    def get_trial(self, trial_id: int) -> FrozenTrial:
        """Return a trial, new or stored."""
        if trial_id in self._drafts:
            return copy.deepcopy(self._drafts[trial_id][1])
        return self._storage.get_trial(trial_id)

    def get_all_trials(
        self,
        study_id: int,
        deepcopy: bool = True,
        states: Container[TrialState] | None = None,
    ) -> list[FrozenTrial]:
        """Return the stored trials, followed by the new ones."""
        drafts = [
            each for each in self._drafts_of(study_id) if states is None or each.state in states
        ]
        trials = self._storage.get_all_trials(study_id, deepcopy, states)
        return [*trials, *(copy.deepcopy(drafts) if deepcopy else drafts)]

    def get_n_trials(
        self, study_id: int, state: tuple[TrialState, ...] | TrialState | None = None
    ) -> int:
        """Return the number of trials, new or stored."""
        return BaseStorage.get_n_trials(self, study_id, state)

    def _drafts_of(self, study_id: int) -> list[FrozenTrial]:
        return [draft for owner_id, draft in self._drafts.values() if owner_id == study_id]

    def _replace_draft(self, trial_id: int) -> FrozenTrial:
        """Replace a new trial by a copy to be changed, so that earlier readers keep their version.

        Raises:
            KeyError: The trial is stored, and must not be changed by a dry run.
        """
        if trial_id not in self._drafts:
            raise KeyError(
                f"trial {trial_id} is stored: only new trials can be changed in an overlay"
            )
        study_id, draft = self._drafts[trial_id]
        self._drafts[trial_id] = study_id, copy.copy(draft)
        return self._drafts[trial_id][1]
