"""Every scheduler keeps the contract."""

import shutil
from typing import Any, ClassVar

import pytest

from tune_tf.schedulers import scheduler
from tune_tf.testing import SchedulerContract

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("ray_cluster")]


class OfOurs(SchedulerContract):
    """Makes a scheduler of ours by name."""

    name = ""
    settings: ClassVar[dict[str, Any]] = {}

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _migrated(cls, empty_store):
        cls.empty_store = empty_store

    @classmethod
    def make_store(cls, folder):
        shutil.copy(cls.empty_store, folder / "mlflow.db")
        return super().make_store(folder)

    @classmethod
    def make_scheduler(cls):
        return scheduler(cls.name, cls.objective, max_t=cls.max_t, **cls.settings)


class TestFifo(OfOurs):
    name = "fifo"
    stops_trials = False


class TestAsha(OfOurs):
    name = "asha"
    settings: ClassVar = {"reduction_factor": 2}
