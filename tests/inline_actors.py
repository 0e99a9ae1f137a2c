"""Tune's real controller with trials in this process: its order of calls in milliseconds."""

import contextlib
import traceback
from collections import deque
from types import SimpleNamespace

import pytest
from ray.air.execution._internal.tracked_actor import TrackedActor
from ray.train._internal import session, storage
from ray.tune.error import TuneError
from ray.tune.execution import tune_controller
from ray.tune.experiment import Experiment
from ray.tune.search.basic_variant import BasicVariantGenerator

_MOST_STEPS = 3000


class Task:
    """A call to a trial, which runs when its turn comes, or before when its result is asked for.

    Args:
        manager: Who has the actor.
        tracked: The actor.
        name: Of the method.
        args: What it is called with.
        kwargs: What it is called with.
    """

    def __init__(self, manager, tracked, name, args, kwargs):
        self._manager, self._tracked = manager, tracked
        self._name, self._args, self._kwargs = name, args, kwargs
        self._is_done, self.result, self.error = False, None, None

    def run(self):
        if self._is_done:
            return
        self._is_done = True
        try:
            actor, _ = self._manager._live_actors_to_ray_actors_resources[self._tracked]
            with _session_of(actor):
                self.result = getattr(actor.trainable, self._name)(*self._args, **self._kwargs)
        except Exception:
            self.error = TuneError(traceback.format_exc())

    def resolve(self, block=True):
        """Return what Tune's ``_FutureTrainingResult.resolve`` does: None if it failed."""
        if block:
            self.run()
        return self.result


class InlineActorManager:
    """Stands in for Tune's actor manager: runs each call to a trial when its turn comes.

    Args:
        resource_manager: Not used; ``slots`` says how many trials run at a time, ``start_calls``
            how many calls to :meth:`next` an actor that has a slot takes to start.
    """

    slots = 2
    start_calls = 0

    def __init__(self, resource_manager):
        self._live_actors_to_ray_actors_resources = {}
        self._pending = deque()
        self._starting = {}
        self._num_calls = 0
        self._events = deque()
        self._num_made = 0

    @property
    def num_live_actors(self):
        return len(self._live_actors_to_ray_actors_resources)

    @property
    def num_pending_actors(self):
        return len(self._pending)

    @property
    def num_total_actors(self):
        return self.num_live_actors + self.num_pending_actors

    @property
    def num_actor_tasks(self):
        return len(self._events)

    def get_live_actors_resources(self):
        return {}

    def is_actor_started(self, tracked_actor):
        return tracked_actor in self._live_actors_to_ray_actors_resources

    def is_actor_failed(self, tracked_actor):
        return False

    def add_actor(self, cls, resource_request, kwargs, on_start, on_stop, on_error):
        self._num_made += 1
        tracked = TrackedActor(self._num_made, on_start=on_start, on_stop=on_stop)
        self._pending.append((tracked, cls.__ray_metadata__.modified_class, kwargs))
        tracked.set_on_error(on_error)
        return tracked

    def remove_actor(self, tracked_actor, kill=False, stop_future=None):
        self._pending = deque(entry for entry in self._pending if entry[0] != tracked_actor)
        if not self.is_actor_started(tracked_actor):
            self.clear_actor_task_futures(tracked_actor)
            return False
        if tracked_actor in self._starting:
            tracked_actor.set_on_start(None)
            tracked_actor.set_on_stop(None)
            tracked_actor.set_on_error(None)
        self._events.append((tracked_actor, lambda: self._removed(tracked_actor)))
        return True

    def clear_actor_task_futures(self, tracked_actor):
        self._events = deque(event for event in self._events if event[0] != tracked_actor)

    def schedule_actor_task(
        self,
        tracked_actor,
        method_name,
        args=(),
        kwargs=None,
        on_result=None,
        on_error=None,
        _return_future=False,
    ):
        task = Task(self, tracked_actor, method_name, args, kwargs or {})

        def tell():
            task.run()
            if task.error and on_error:
                on_error(tracked_actor, task.error)
            elif on_result and not task.error:
                on_result(tracked_actor, task.result)

        self._events.append((tracked_actor, tell))
        return task if _return_future else None

    def next(self, timeout=None):
        self._num_calls += 1
        if self._pending and self.num_live_actors < self.slots:
            tracked, cls, kwargs = self._pending.popleft()
            actor = SimpleNamespace(session=None)
            self._live_actors_to_ray_actors_resources[tracked] = actor, None
            self._starting[tracked] = self._num_calls + self.start_calls, actor, cls, kwargs
        due = next((event for event in self._events if event[0] not in self._starting), None)
        first = next(iter(self._starting), None)
        if first and (self._starting[first][0] <= self._num_calls or not due):
            self._start(first, *self._starting.pop(first)[1:])
            return True
        if not due:
            return False
        self._events.remove(due)
        due[1]()
        return True

    def cleanup(self):
        self._events.clear()
        self._pending.clear()

    def _start(self, tracked, actor, cls, kwargs):
        try:
            with _session_of(actor):
                actor.trainable = cls(**kwargs)
        except Exception:
            del self._live_actors_to_ray_actors_resources[tracked]
            if tracked._on_error:
                tracked._on_error(tracked, TuneError(traceback.format_exc()))
            return
        actor.get_auto_filled_metrics = SimpleNamespace(
            remote=actor.trainable.get_auto_filled_metrics
        )
        if tracked._on_start:
            tracked._on_start(tracked)

    def _removed(self, tracked):
        if self._live_actors_to_ray_actors_resources.pop(tracked, None) and tracked._on_stop:
            tracked._on_stop(tracked)


@contextlib.contextmanager
def _session_of(actor):
    """Have Tune find the actor's own session: it keeps one a process, that of a function."""
    session._session = actor.session
    try:
        yield
    finally:
        actor.session, session._session = session._session, None


@contextlib.contextmanager
def inlined(session_dir):
    """Have Tune run the trials of all sweeps in this process.

    Args:
        session_dir: Where Tune keeps what it has not yet written to a sweep's folder.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tune_controller, "RayActorManager", InlineActorManager)
        patch.setenv("TUNE_DISABLE_AUTO_INIT", "1")
        patch.setenv("TUNE_PRINT_ALL_TRIAL_ERRORS", "0")
        patch.setattr("ray.cluster_resources", lambda: {"CPU": 2.0})
        patch.setattr(storage, "_get_ray_train_session_dir", lambda: str(session_dir))
        patch.setattr(
            session._FutureTrainingResult,
            "resolve",
            lambda self, block=True: self.future.resolve(block),
        )
        yield


def run_inline(
    trainable,
    folder,
    *,
    scheduler,
    callbacks,
    stop=None,
    search_alg=None,
    checkpoint_period=1e6,
    resume_config=None,
    reuse_actors=False,
    **spec,
):
    """Do what ``tune.run`` does, without a cluster; return the trials.

    Args:
        trainable: A class or a function.
        folder: Where Tune keeps what it writes.
        scheduler: The scheduler.
        callbacks: The callbacks.
        stop: As in ``tune.run``.
        search_alg: The search algorithm, if it is another than Tune's own.
        checkpoint_period: As ``TUNE_GLOBAL_CHECKPOINT_S``.
        resume_config: As in ``tune.run``.
        reuse_actors: As in ``tune.run``.
        spec: More of what an ``Experiment`` takes.
    """
    experiment = Experiment("exp", trainable, stop=stop, storage_path=str(folder), **spec)
    search_alg = search_alg or BasicVariantGenerator()
    search_alg.add_configurations([experiment])
    controller = tune_controller.TuneController(
        search_alg=search_alg,
        scheduler=scheduler,
        stopper=experiment.stopper,
        callbacks=callbacks,
        storage=experiment.storage,
        checkpoint_period=checkpoint_period,
        resume_config=resume_config,
        reuse_actors=reuse_actors,
        trial_checkpoint_config=experiment.checkpoint_config,
    )
    controller.setup_experiments([experiment], total_num_samples=search_alg.total_samples)
    for _ in range(_MOST_STEPS):
        if controller.is_finished():
            break
        controller.step()
    else:
        raise AssertionError(
            f"goes on for ever: {[(t, t.status) for t in controller.get_trials()]}"
        )
    controller.cleanup()
    return controller.get_trials()
