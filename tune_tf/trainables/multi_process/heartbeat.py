"""Heartbeats of worker processes."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, RayActorError

from tune_tf.errors import WorkerLostError


@dataclass(frozen=True)
class Watch:
    """Timeouts for lost processes, all in seconds.

    Args:
        ping_interval_s: Time between two pings.
        silent_s: Time without a reply after which a process is lost.
        node_death_s: Additional time for Ray to find out whether the node died, before the trial
            fails.
        retry_s: Time between two pings of an unreachable process.
        join_s: Time for all workers to connect.
        finish_s: Time for the end of a trial, before the processes are killed.
    """

    ping_interval_s: float = 3.0
    silent_s: float = 20.0
    node_death_s: float = 60.0
    retry_s: float = 0.5
    join_s: float = 300.0
    finish_s: float = 10.0


class Heartbeat:
    """Heartbeat of one actor, with at most one ping in flight.

    The actor has a method ``ping`` that runs concurrently with others. Times are in seconds.
    """

    def __init__(self, actor: Any, now: float) -> None:
        self._actor = actor
        self._heard = now
        self._question: Any = None

    def silence_s(self, now: float) -> float:
        """Return the seconds since the last reply; send a new ping after each reply.

        Raises:
            RayError: The actor is dead.
        """
        if self._question is not None and ray.wait([self._question], timeout=0)[0]:
            ray.get(self._question)
            self._question = None
            self._heard = now
        if self._question is None:
            self._question = self._actor.ping.remote()
        return now - self._heard


class HeartbeatMonitor:
    """Detector of processes that have not responded for ``silent_s`` seconds."""

    def __init__(self, silent_s: float) -> None:
        self._silent_s = silent_s
        self._heartbeats: dict[str, Heartbeat] = {}

    def silence(self, name: str, process: Any, now: float) -> WorkerLostError | None:
        """Ping a process with a unique name; return an error if it has been silent for too long.

        Raises:
            RayActorError: The process died.
        """
        if name not in self._heartbeats:
            self._heartbeats[name] = Heartbeat(process, now)
        if self._heartbeats[name].silence_s(now) <= self._silent_s:
            return None
        return WorkerLostError(
            f"{name} has not responded for {self._silent_s:g} s: its node is down, unreachable or "
            "frozen"
        )


def find_dead_process(
    processes: Mapping[str, Any], watch: Watch, clock: Callable[[], float]
) -> WorkerLostError | None:
    """Kill the processes that respond to a ping, and return an error that names the dead one.

    Peers and broken connections reveal a death before Ray knows whether the node died too. A trial
    that is restored before that would be placed on the dead node again.

    Returns:
        None if Ray reports no death within ``watch.node_death_s``.
    """
    suspects = dict(processes)
    deadline = clock() + watch.node_death_s
    while suspects and clock() < deadline:
        answers = {process.ping.remote(): name for name, process in suspects.items()}
        ready, _ = ray.wait(list(answers), num_returns=len(answers), timeout=watch.ping_interval_s)
        for answer in ready:
            name = answers[answer]
            try:
                ray.get(answer)
            except ActorUnavailableError:
                time.sleep(watch.retry_s)
            except RayActorError as error:
                return WorkerLostError(f"{name} died: {error}")
            else:
                ray.kill(suspects.pop(name))
    return None
