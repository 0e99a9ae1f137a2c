"""Detached actors whose contents are leased to processes that send heartbeats."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar

NAMESPACE = "tune_tf"
"""Ray namespace of these actors; their names contain the job."""

BEATS = 10
"""Heartbeats per lease duration."""


class Leases:
    """Users of each content and the times of their last heartbeats.

    A user without a heartbeat for ``keep_s`` seconds has expired.
    """

    def __init__(self, keep_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._keep_s = keep_s
        self._clock = clock
        self._beats: dict[str, float] = {}
        self._users: dict[str, set[str]] = {}

    @property
    def is_idle(self) -> bool:
        """Whether no user is alive."""
        return not self._beats

    def lease(self, key: str, user: str) -> None:
        """Lease a content to a process."""
        self.beat(user)
        self._users.setdefault(key, set()).add(user)

    def beat(self, user: str) -> None:
        """Record a heartbeat of a process."""
        self._beats[user] = self._clock()

    def expire(self) -> list[str]:
        """Drop expired users, and return and drop the contents without users."""
        oldest = self._clock() - self._keep_s
        self._beats = {user: at for user, at in self._beats.items() if at >= oldest}
        for users in self._users.values():
            users.intersection_update(self._beats)
        expired = [key for key, users in self._users.items() if not users]
        for key in expired:
            del self._users[key]
        return expired


class LeasedActor:
    """Base class of actors that drop contents without users, and exit without any.

    So nothing is left on a cluster after a driver was killed.

    Args:
        keep_s: Seconds that contents outlive the last heartbeat of the processes that leased them.
    """

    def __init__(self, keep_s: float) -> None:
        self._keep_s = keep_s
        self._leases = Leases(keep_s)
        self._watch: asyncio.Future[None] | None = None

    async def beat(self, user: str) -> None:
        """Record a heartbeat of a process."""
        self._leases.beat(user)

    def _lease(self, key: str, user: str) -> None:
        if self._watch is None:
            self._watch = asyncio.ensure_future(self._expire())
        self._leases.lease(key, user)

    def _drop(self, key: str) -> None:
        """Drop a content that no process leases."""

    async def _expire(self) -> None:
        import ray

        while True:
            await asyncio.sleep(self._keep_s / BEATS)
            for key in self._leases.expire():
                self._drop(key)
            if self._leases.is_idle:
                ray.kill(ray.get_runtime_context().current_actor)


def leased_actor(
    kind: type[LeasedActor],
    what: str,
    keep_s: float,
    *arguments: Any,
    per_node: bool = True,
    **options: Any,
) -> tuple[Any, str]:
    """Return the job's actor, creating it if it does not exist, and this process's name as user.

    The actor reserves no CPU, because the processes that wait for it have often reserved all of
    them. It is outside of the caller's placement group and outlives the caller. The process sends
    it heartbeats from now on.

    Args:
        kind: Class of the actor.
        what: Prefix of its name.
        keep_s: First argument of the class.
        arguments: Further arguments of the class.
        per_node: Whether each node has its own.
        options: Ray's further options of the actor.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    node_id = ray.get_runtime_context().get_node_id()
    actor = (
        ray.remote(kind)
        .options(
            name=f"{actor_name(what)}-{node_id}" if per_node else actor_name(what),
            namespace=NAMESPACE,
            get_if_exists=True,
            lifetime="detached",
            num_cpus=0,
            scheduling_strategy=(
                NodeAffinitySchedulingStrategy(node_id, soft=False) if per_node else "DEFAULT"
            ),
            **options,
        )
        .remote(keep_s, *arguments)
    )
    return actor, _Heartbeat.to(actor, keep_s / BEATS, what).user


def actor_name(what: str) -> str:
    """Return the name of the job's actor, to which that of the node may be added."""
    import ray

    return f"{what}-{ray.get_runtime_context().get_job_id()}"


class _Heartbeat:
    """Periodic heartbeat from this process to an actor.

    An actor cannot monitor processes of other nodes, and holding an object or handle of them would
    prevent their clean exit.
    """

    _of_process: ClassVar[dict[str, "_Heartbeat"]] = {}  # by kind of actor

    def __init__(self, actor: Any, every_s: float) -> None:
        import ray

        self._actor = actor
        self.user: str = ray.get_runtime_context().get_worker_id()
        self._every_s = every_s
        self._stopped = threading.Event()
        threading.Thread(target=self._beat, name="tune_tf heartbeat", daemon=True).start()

    @classmethod
    def to(cls, actor: Any, every_s: float, kind: str) -> "_Heartbeat":
        """Return this process's heartbeat to the latest actor of a kind, starting it if needed."""
        current = cls._of_process.get(kind)
        if current is None or not current.reaches(actor):
            if current is not None:
                current.stop()
            current = cls._of_process[kind] = cls(actor, every_s)
        return current

    def reaches(self, actor: Any) -> bool:
        return bool(self._actor == actor) and self._is_connected()

    def stop(self) -> None:
        self._stopped.set()

    def _beat(self) -> None:
        import ray

        while not self._stopped.wait(self._every_s) and self._is_connected():
            try:
                self._actor.beat.remote(self.user)
            except ray.exceptions.RayError:  # disconnected since the check
                return

    def _is_connected(self) -> bool:
        import ray

        # The worker id changes when the process reconnects.
        return ray.is_initialized() and bool(ray.get_runtime_context().get_worker_id() == self.user)
