"""Detached actors whose entries are leased to processes that send heartbeats."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

NAMESPACE = "tune_tf"
"""Ray namespace of these actors; their names contain the job."""

BEATS = 10
"""Heartbeats per lease duration."""


class Leases:
    """Users of each entry and the times of their last heartbeats.

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
        """Lease an entry to a process."""
        self.beat(user)
        self._users.setdefault(key, set()).add(user)

    def beat(self, user: str) -> None:
        """Record a heartbeat of a process."""
        self._beats[user] = self._clock()

    def expire(self) -> list[str]:
        """Drop expired users, and return and drop the entries without users."""
        oldest = self._clock() - self._keep_s
        self._beats = {user: at for user, at in self._beats.items() if at >= oldest}
        for users in self._users.values():
            users.intersection_update(self._beats)
        expired = [key for key, users in self._users.items() if not users]
        for key in expired:
            del self._users[key]
        return expired


class LeasedActor:
    """Base class of actors that drop entries without users, and exit without any.

    So nothing is left on a cluster after a driver was killed. Entries outlive the last heartbeat of
    the processes that leased them by ``keep_s`` seconds.
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
        """Drop an entry that no process leases."""

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
    prefix: str,
    keep_s: float,
    *arguments: Any,
    per_node: bool = True,
    **options: Any,
) -> tuple[Any, str]:
    """Return the job's actor, creating it if it does not exist, and this process's name as user.

    The actor reserves no CPU, because the processes that wait for it have often reserved all of
    them. It is outside of the caller's placement group and outlives the caller. The process sends
    it heartbeats from now on. Its class gets ``keep_s`` and ``arguments``; ``options`` are Ray's.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    name, strategy = actor_name(prefix), "DEFAULT"
    if per_node:
        node_id = ray.get_runtime_context().get_node_id()
        name = f"{name}-{node_id}"
        strategy = NodeAffinitySchedulingStrategy(node_id, soft=False)
    remote_class = ray.remote(kind).options(
        name=name,
        namespace=NAMESPACE,
        get_if_exists=True,
        lifetime="detached",
        num_cpus=0,
        scheduling_strategy=strategy,
        **options,
    )
    actor = remote_class.remote(keep_s, *arguments)
    return actor, _heartbeat(prefix, actor, keep_s / BEATS).user


def actor_name(prefix: str) -> str:
    """Return the name of the job's actor, to which that of the node may be added."""
    import ray

    return f"{prefix}-{ray.get_runtime_context().get_job_id()}"


class _Heartbeat:
    """Periodic heartbeat from this process to an actor.

    An actor cannot monitor processes of other nodes, and holding an object or handle of them would
    prevent their clean exit.
    """

    def __init__(self, actor: Any, every_s: float) -> None:
        import ray

        self.actor = actor
        self.user: str = ray.get_runtime_context().get_worker_id()
        self.stopped = threading.Event()
        self._every_s = every_s
        threading.Thread(target=self._beat, name="tune_tf heartbeat", daemon=True).start()

    @property
    def is_connected(self) -> bool:
        """Whether the process has not reconnected, which changes its worker id."""
        import ray

        return ray.is_initialized() and bool(ray.get_runtime_context().get_worker_id() == self.user)

    def _beat(self) -> None:
        import ray

        while not self.stopped.wait(self._every_s) and self.is_connected:
            try:
                self.actor.beat.remote(self.user)
            except ray.exceptions.RayError:  # disconnected since the check
                return


_heartbeats: dict[str, _Heartbeat] = {}
"""Heartbeats of this process by prefix of the actor's name."""


def _heartbeat(prefix: str, actor: Any, every_s: float) -> _Heartbeat:
    """Return this process's heartbeat to the latest such actor, starting it if needed."""
    current = _heartbeats.get(prefix)
    if current is not None and current.actor == actor and current.is_connected:
        return current
    if current is not None:
        current.stopped.set()
    _heartbeats[prefix] = _Heartbeat(actor, every_s)
    return _heartbeats[prefix]
