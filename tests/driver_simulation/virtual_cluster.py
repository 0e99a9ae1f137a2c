"""A Ray cluster without processes: actors are objects, and their calls end when the clock says so.

Ray's own actor manager and Tune's own controller run over it. A call does its work at the moment at
which it would be over in another process, and is told of when the driver asks.
"""

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from ray.air.execution.resources.request import AcquiredResources, ResourceRequest
from ray.air.execution.resources.resource_manager import ResourceManager
from ray.exceptions import RayActorError, RayTaskError
from ray.train._internal.session import _TrainingResult
from ray.tune import Checkpoint, Trainable
from ray.tune.result import SHOULD_CHECKPOINT
from turns import Turns

METRIC = "val_accuracy"


@dataclass(eq=False)
class Future:
    """A call to an actor.

    Args:
        number: Its place among all calls; what it is known by in sets.
        due: When it is over, in virtual seconds.
        work: What it does.
    """

    number: int
    due: float
    work: Callable[[], Any]
    done: bool = False
    value: Any = None
    error: Exception | None = None

    def __hash__(self) -> int:
        return self.number


class Cluster:
    """Makes actors and ends their calls.

    Args:
        turns: Who runs, and the clock.
        faults: What befalls trials.
    """

    def __init__(self, turns: Turns, faults: "Faults") -> None:
        self.turns = turns
        self.faults = faults
        self.on_wait: Callable[[], object] = lambda: None
        self.searcher: Any = None  # that of a session that came to its end
        """Called whenever the driver waits."""
        self._futures: list[Future] = []
        self._num_calls = 0

    def call(self, work: Callable[[], Any], seconds: float) -> Future:
        """Begin a call that takes some virtual seconds."""
        self._num_calls += 1
        future = Future(self._num_calls, self.turns.now + seconds, work)
        self._futures.append(future)
        return future

    def wait(
        self, futures: Sequence[Future], *, num_returns: int = 1, timeout: float | None = None
    ) -> tuple[list[Future], list[Future]]:
        """Do as ``ray.wait``: the first of the futures that is over, as soon as one is."""
        self.on_wait()
        turns = self.turns
        end = turns.now + (timeout if timeout is not None else 60.0)
        turns.wait(until=turns.now)
        while True:
            self._finish()
            for future in futures:
                if future.done:
                    return [future], [other for other in futures if other is not future]
            if turns.now >= end:
                return [], list(futures)
            turns.wait(until=min([end, *(future.due for future in self._futures)]))

    def get(self, future: Any, *, timeout: float | None = None) -> Any:
        """Do as ``ray.get``."""
        if not isinstance(future, Future):
            return future
        while not future.done:
            self.turns.wait(until=future.due)
            self._finish()
        if future.error is not None:
            raise future.error
        return future.value

    def kill(self, actor: "ActorHandle") -> None:
        """Do as ``ray.kill``."""
        actor.is_dead = True

    def _finish(self) -> None:
        """Do the work of the calls that are due, in the order in which they are."""
        now = self.turns.now
        for future in sorted((f for f in self._futures if f.due <= now), key=lambda f: f.due):
            self._futures.remove(future)
            try:
                future.value = future.work()
            except Exception as error:
                future.error = error
            future.done = True


@dataclass
class Faults:
    """What befalls trials.

    Args:
        turns: Draws it.
        dies: Probability that an iteration's process dies.
        fails: Values of ``kind`` in a config by which a trial fails.
        diverges: Values of ``kind`` by which a trial reports NaN.
        saves: Probability that an iteration asks to be saved.
        step_s: Longest iteration, in virtual seconds.
        num_slots: Trials that run at a time.
        dies_saving: Probability that a process dies while it saves a checkpoint.
        num_lost: Further ones that the sweep counts on, of nodes that are lost.
    """

    turns: Turns
    dies: float
    fails: frozenset[int]
    diverges: frozenset[int]
    saves: float
    step_s: float
    num_slots: int
    num_lost: int = 0
    dies_saving: float = 0
    trained: list[tuple[str, int, float]] = field(default_factory=list)
    """Trial, iteration and value of each iteration that was trained."""
    on_train: Callable[[str], None] = lambda trial_id: None


class ActorClass:
    """What ``ray.remote`` makes of a class.

    Args:
        cluster: Where its actors are.
        kind: The class.
    """

    def __init__(self, cluster: Cluster, kind: type) -> None:
        self._cluster = cluster
        self._kind = kind

    def options(self, **options: Any) -> "ActorClass":
        """Return itself: what an actor reserves is the resource manager's to count."""
        return self

    def remote(self, **options: Any) -> "ActorHandle":
        """Start an actor."""
        return ActorHandle(self._cluster, self._kind, options)


class ActorHandle:
    """An actor.

    Args:
        cluster: Where it is.
        kind: Its class.
        options: What it is made with.
    """

    def __init__(self, cluster: Cluster, kind: type, options: dict[str, Any]) -> None:
        self.is_dead = False
        self._cluster = cluster
        self._make = lambda: kind(**options)
        self._made: Any = None
        self._busy_until = 0.0

    def __getattr__(self, name: str) -> "_Method":
        if name.startswith("_") and name not in ("__ray_ready__", "__ray_terminate__"):
            raise AttributeError(name)
        return _Method(self, name)

    def begin(self, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Future:
        """Begin a call; one follows the other."""
        cluster = self._cluster
        faults, turns = cluster.faults, cluster.turns
        # A process takes its time to start: Tune has written its state by then.
        starts = name == "__ray_ready__"
        shortest, longest = (
            (0.3, 2.0) if starts else (0.01, faults.step_s if name == "train" else 0.2)
        )
        now = turns.now
        self._busy_until = max(now, self._busy_until) + turns.rng.uniform(shortest, longest)
        dies = name in ("train", "reset", "restore") and turns.rng.random() < faults.dies
        saves = name == "save" and faults.dies_saving > 0
        dies_late = saves and turns.rng.random() < faults.dies_saving

        def work() -> Any:
            self.is_dead = self.is_dead or dies
            if self.is_dead:
                raise RayActorError(None, "the actor was killed")
            if self._made is None:
                self._made = self._make()
            if name.startswith("__"):
                return None
            if dies_late and turns.rng.random() < 0.5:
                self.is_dead = True
                raise RayActorError(None, "the actor was killed")
            try:
                value = getattr(self._made, name)(*args, **options)
            except Exception as error:
                raise RayTaskError(name, f"Traceback:\n{error!r}", error, "sim", 1, "1") from error
            if dies_late:
                self.is_dead = True
                raise RayActorError(None, "the actor was killed")
            return value

        return cluster.call(work, self._busy_until - now)


@dataclass(frozen=True)
class _Method:
    actor: ActorHandle
    name: str

    def remote(self, *args: Any, **options: Any) -> Future:
        return self.actor.begin(self.name, args, options)


class Slots(ResourceManager):
    """Lets so many actors run at a time.

    Args:
        num: How many.
    """

    def __init__(self, num: int) -> None:
        self._num = num
        self._used = 0
        self._requested: list[ResourceRequest] = []

    def request_resources(self, resource_request: ResourceRequest) -> None:
        """Note that an actor wants to run."""
        self._requested.append(resource_request)

    def cancel_resource_request(self, resource_request: ResourceRequest) -> None:
        """Note that it does not."""
        self._requested.remove(resource_request)

    def has_resources_ready(self, resource_request: ResourceRequest) -> bool:
        """Return whether one may."""
        return resource_request in self._requested and self._used < self._num

    def acquire_resources(self, resource_request: ResourceRequest) -> "Slot | None":
        """Take a slot."""
        if not self.has_resources_ready(resource_request):
            return None
        self._requested.remove(resource_request)
        self._used += 1
        return Slot(resource_request)

    def free_resources(self, acquired_resource: AcquiredResources) -> None:
        """Give a slot back."""
        self._used -= 1

    def get_resource_futures(self) -> list[Any]:
        """Return nothing: slots need no waiting for."""
        return []

    def clear(self) -> None:
        """Forget all."""
        self._requested.clear()


@dataclass
class Slot(AcquiredResources):
    """A slot that is taken."""

    resource_request: ResourceRequest

    def _annotate_remote_entity(self, entity: Any, bundle: Any, bundle_index: int) -> Any:
        return entity


def value_of(config: dict[str, Any], iteration: int) -> float:
    """Return what a trial reports: a curve that follows from its config."""
    return 1 - float(config["rate"]) - 0.3 / iteration


def past_after(past: float, value: float) -> float:
    """Return what tells from which state a trial has gone on, after another value."""
    return (7 * past + value) % 1


def kept_step(iteration: int) -> int:
    """Return the iteration that counts as a trial's best one, where it keeps that."""
    return (iteration + 1) // 2


class Untrained(Trainable):
    """A trial that trains nothing: reports a curve that follows from its config.

    It saves a file like those of the package's own trials.
    """

    cluster: Cluster
    """Where it runs; Tune has to pickle the class, so it stands here."""

    _past = 0.0
    keeps_best = False
    """Whether a trial reports the metrics of its best epoch, too."""

    def setup(self, config: dict[str, Any]) -> None:
        self._values = config

    def _setup_logdir(self) -> None:
        self._logdir = ""

    def get_auto_filled_metrics(self, **_: Any) -> dict[str, Any]:
        return {
            "trial_id": self.trial_id,
            "date": "",
            "timestamp": int(self.cluster.turns.now),
            "time_this_iter_s": 1.0,
            "time_total_s": float(self._iteration),
            "pid": 1,
            "hostname": "virtual",
            "node_ip": "127.0.0.1",
            "config": self._values,
            "time_since_restore": float(self._iterations_since_restore),
            "iterations_since_restore": self._iterations_since_restore,
        }

    def log_result(self, result: dict[str, Any]) -> None:
        """Write nothing: the driver does."""

    def step(self) -> dict[str, Any]:
        iteration, kind = self._iteration + 1, self._values["kind"]
        faults = self.cluster.faults
        faults.on_train(self.trial_id)
        if kind in self.cluster.faults.fails and iteration == 2:
            raise RuntimeError(f"a trial of kind {kind} fails")
        value = value_of(self._values, iteration)
        if kind in self.cluster.faults.diverges and iteration == 2:
            value = float("nan")
        self.cluster.faults.trained.append((self.trial_id, iteration, value))
        self._past = past_after(self._past, value)
        result = {METRIC: value, "loss": 1 - value, "past": self._past}
        if self.keeps_best and value == value:
            best = kept_step(iteration)
            result |= {
                "kept/training_iteration": best,
                f"kept/{METRIC}": value_of(self._values, best),
            }
        if self.cluster.turns.rng.random() < self.cluster.faults.saves:
            result[SHOULD_CHECKPOINT] = True
        return result

    def train(self) -> dict[str, Any]:
        storage, self._storage = self._storage, None  # there are no artifacts to look for
        try:
            return dict(super().train())
        finally:
            self._storage = storage

    def save(self, checkpoint_dir: str | None = None) -> _TrainingResult:
        """Write a checkpoint where Tune looks for it."""
        storage = self._storage
        storage._update_checkpoint_index({})
        path = Path(storage.checkpoint_fs_path)
        path.parent.mkdir(exist_ok=True)
        path.mkdir(exist_ok=True)
        (path / "trial.npz").write_bytes(_archive(self._iteration, self._past))
        if self.keeps_best:
            (path / "kept.json").write_text('{"iteration": 1, "metrics": {}, "files": []}')
        checkpoint = Checkpoint(str(path), storage.storage_filesystem)
        return _TrainingResult(checkpoint, dict(self._last_result or {}))

    def restore(self, saved: _TrainingResult) -> None:
        """Go on from a checkpoint, which has to be there."""
        content = Path(saved.checkpoint.path, "trial.npz").read_bytes()
        head = json.loads(str(np.load(io.BytesIO(content))["head"]))
        if head["epoch"] != saved.metrics["training_iteration"]:
            raise RuntimeError(f"{saved} is of iteration {head['epoch']}")
        self._iteration, self._iterations_since_restore = head["epoch"], 0
        self._past = head["past"]

    def reset(self, new_config: dict[str, Any], *_: Any, storage: Any = None) -> bool:
        """Take up another trial."""
        self._trial_info = new_config.pop("__trial_info__", None)
        for name in ("__stdout_file__", "__stderr_file__"):
            new_config.pop(name, None)
        self.config = self._values = new_config
        self._storage, self._last_result = storage, None
        self._iteration = self._iterations_since_restore = 0
        self._past = 0.0
        return True

    def stop(self) -> None:
        """End."""


def _archive(epoch: int, past: float) -> bytes:
    content = io.BytesIO()
    np.savez(content, head=np.array(json.dumps({"format": 1, "epoch": epoch, "past": past})))
    return content.getvalue()
