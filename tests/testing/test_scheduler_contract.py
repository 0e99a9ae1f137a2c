"""Schedulers that stop, pause and copy trials keep the contract."""

import shutil
from typing import Any, ClassVar

import pytest

from tune_tf.schedulers import scheduler
from tune_tf.space import Float, SearchSpace
from tune_tf.testing import SchedulerContract

SPACE = SearchSpace({"rate": Float(0.0, 1.0)})
pytestmark = pytest.mark.usefixtures("ray_cluster")


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
        return scheduler(cls.name, cls.objective, space=SPACE, epochs=cls.max_t, **cls.settings)


@pytest.mark.slow
class TestAsha(OfOurs):
    name = "asha"
    settings: ClassVar = {"reduction_factor": 2}


@pytest.mark.slow
class TestPbt(OfOurs):
    """The worst trials go on as others, and to their limit."""

    name = "pbt"
    settings: ClassVar = {"perturbation_interval": 3, "mutations": ["rate"]}
    stops_trials = False
