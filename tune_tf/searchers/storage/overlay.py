"""A storage on which trials can be asked for without being there."""

import copy
from collections.abc import Container, Sequence
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.storages import BaseStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial


class StudyForwarding(BaseStorage):
    """A storage whose studies are those of another one.

    Args:
        storage: What lies underneath.
    """

    def __init__(self, storage: BaseStorage) -> None:
        self._truth = storage

    def create_new_study(
        self, directions: Sequence[StudyDirection], study_name: str | None = None
    ) -> int:
        """Pass on."""
        return self._truth.create_new_study(directions, study_name)

    def delete_study(self, study_id: int) -> None:
        """Pass on."""
        self._truth.delete_study(study_id)

    def set_study_user_attr(self, study_id: int, key: str, value: Any) -> None:
        """Pass on."""
        self._truth.set_study_user_attr(study_id, key, value)

    def set_study_system_attr(self, study_id: int, key: str, value: Any) -> None:
        """Pass on."""
        self._truth.set_study_system_attr(study_id, key, value)

    def get_study_id_from_name(self, study_name: str) -> int:
        """Pass on."""
        return self._truth.get_study_id_from_name(study_name)

    def get_study_name_from_id(self, study_id: int) -> str:
        """Pass on."""
        return self._truth.get_study_name_from_id(study_id)

    def get_study_directions(self, study_id: int) -> list[StudyDirection]:
        """Pass on."""
        return self._truth.get_study_directions(study_id)

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        """Pass on."""
        return self._truth.get_study_user_attrs(study_id)

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        """Pass on."""
        return self._truth.get_study_system_attrs(study_id)

    def get_all_studies(self) -> list[Any]:
        """Pass on."""
        return self._truth.get_all_studies()


class OverlayStorage(StudyForwarding):
    """A storage over another one, whose new trials exist in memory only.

    Trials that are there are read where they are, and what is noted on a study is kept there. New
    trials, and all that is set on them, are gone with this object or with :meth:`forget`: they cost
    the same however many trials there are.

    Args:
        storage: What lies underneath.
    """

    def __init__(self, storage: BaseStorage) -> None:
        super().__init__(storage)
        self._drafts: dict[int, tuple[int, FrozenTrial]] = {}  # study and trial, by trial id

    @property
    def drafts(self) -> list[FrozenTrial]:
        """The new trials, in the order in which they were asked for."""
        return [draft for _, draft in self._drafts.values()]

    def forget(self) -> None:
        """Drop the new trials, so that the next one has the number that the first one had."""
        self._drafts.clear()

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        """Return the id of a new trial in memory, which no trial underneath can have."""
        trial_id = -1 - len(self._drafts)
        template = template_trial or create_trial(state=TrialState.RUNNING)
        self._drafts[trial_id] = (
            study_id,
            FrozenTrial(
                number=self._truth.get_n_trials(study_id) + len(self._of(study_id)),
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
        """Set a new trial's parameter in memory."""
        draft = self._changing(trial_id)
        value = distribution.to_external_repr(param_value_internal)
        draft.params = {**draft.params, param_name: value}
        draft.distributions = {**draft.distributions, param_name: distribution}

    def set_trial_state_values(
        self, trial_id: int, state: TrialState, values: Sequence[float] | None = None
    ) -> bool:
        """Set a new trial's state in memory; False if it was to be RUNNING and is already."""
        draft = self._changing(trial_id)
        if state is TrialState.RUNNING and draft.state is not TrialState.WAITING:
            return False
        draft.state = state
        if values is not None:
            draft.values = list(values)
        return True

    def set_trial_intermediate_value(
        self, trial_id: int, step: int, intermediate_value: float
    ) -> None:
        """Set a value of a new trial's curve in memory."""
        draft = self._changing(trial_id)
        draft.intermediate_values = {**draft.intermediate_values, step: intermediate_value}

    def set_trial_user_attr(self, trial_id: int, key: str, value: Any) -> None:
        """Set a note on a new trial in memory."""
        draft = self._changing(trial_id)
        draft.user_attrs = {**draft.user_attrs, key: value}

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        """Set a sampler's note on a new trial in memory."""
        draft = self._changing(trial_id)
        draft.system_attrs = {**draft.system_attrs, key: value}

    def get_trial(self, trial_id: int) -> FrozenTrial:
        """Return a trial, new or not."""
        if trial_id in self._drafts:
            return copy.deepcopy(self._drafts[trial_id][1])
        return self._truth.get_trial(trial_id)

    def get_trial_id_from_study_id_trial_number(self, study_id: int, trial_number: int) -> int:
        """Return the id of a trial, new or not."""
        for trial_id, (of_study, draft) in self._drafts.items():
            if (of_study, draft.number) == (study_id, trial_number):
                return trial_id
        return self._truth.get_trial_id_from_study_id_trial_number(study_id, trial_number)

    def get_all_trials(
        self,
        study_id: int,
        deepcopy: bool = True,
        states: Container[TrialState] | None = None,
    ) -> list[FrozenTrial]:
        """Return the trials underneath, and after them the new ones."""
        drafts = [each for each in self._of(study_id) if states is None or each.state in states]
        trials = self._truth.get_all_trials(study_id, deepcopy, states)
        return [*trials, *(copy.deepcopy(drafts) if deepcopy else drafts)]

    def get_best_trial(self, study_id: int) -> FrozenTrial:
        """Pass on: what is asked for has no value yet."""
        return self._truth.get_best_trial(study_id)

    def _of(self, study_id: int) -> list[FrozenTrial]:
        return [draft for of_study, draft in self._drafts.values() if of_study == study_id]

    def _changing(self, trial_id: int) -> FrozenTrial:
        """Return a new trial in place of itself: who has read it keeps what was read.

        Raises:
            KeyError: It is one that is there, which nothing that is only tried out may change.
        """
        if trial_id not in self._drafts:
            raise KeyError(f"trial {trial_id} is no pretended one, so nothing can be set on it")
        study_id, draft = self._drafts[trial_id]
        self._drafts[trial_id] = study_id, copy.copy(draft)
        return self._drafts[trial_id][1]
