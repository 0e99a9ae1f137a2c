"""The part of a storage over another one that is the same for all of them: what is of studies."""

from collections.abc import Sequence
from typing import Any

from optuna.storages import BaseStorage
from optuna.study import StudyDirection


class StudiesOf(BaseStorage):
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
