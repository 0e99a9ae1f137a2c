"""How the death of a trial's process is told to Tune, with its actor manager's own objects."""

from types import SimpleNamespace

import pytest
from ray.air.execution._internal.actor_manager import RayActorManager
from ray.air.execution._internal.tracked_actor_task import TrackedActorTask
from ray.exceptions import RayActorError

from tune_tf.tune_internals.killed_actors import treat_killed_actors_as_dead


class Controller:
    """What of Tune's controller is looked at."""

    def __init__(self):
        self.told = []
        self._actor_to_trial = {}
        self._resetting_trials = set()

    def actor_failed(self, actor, exception):
        self.told.append("actor")

    def task_failed(self, actor, exception):
        self.told.append("task")


@pytest.fixture
def told(monkeypatch):
    """Return whom a death is told of, for a trial that is being made ready or not."""
    original = RayActorManager._actor_task_failed
    monkeypatch.setattr(RayActorManager, "_actor_task_failed", original)
    treat_killed_actors_as_dead()

    def tell(*, made_ready):
        controller = Controller()
        actor = SimpleNamespace(_on_error=controller.actor_failed, actor_id=1)
        controller._actor_to_trial = _ByIdentity(actor, "trial")
        if made_ready:
            controller._resetting_trials.add("trial")
        manager = SimpleNamespace(_failed_actor_ids=set(), _cleanup_actor=lambda tracked_actor: 0)
        task = TrackedActorTask(actor, on_error=controller.task_failed)
        RayActorManager._actor_task_failed(manager, task, RayActorError())
        return controller

    return tell


class _ByIdentity:
    def __init__(self, key, value):
        self._key, self._value = key, value

    def get(self, key):
        return self._value if key is self._key else None


def test_a_death_is_told_to_the_actor_and_to_what_it_was_at(told):
    assert told(made_ready=False).told == ["actor", "task"]


def test_a_death_while_a_trial_is_made_ready_is_told_once(told):
    controller = told(made_ready=True)
    assert controller.told == ["actor"]
    assert controller._resetting_trials == set()
