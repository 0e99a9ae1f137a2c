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
    """Timeouts after which a process counts as lost, all in seconds.

    Args:
        ping_interval_s: Between two pings.
        silent_s: Without an answer to a ping.
        node_death_s: After that, for Ray to find out whether the node died: the trial fails then.
        retry_s: Between two questions to a process that cannot be reached.
        join_s: For all workers to connect.
        finish_s: For a trial's end, before the processes are killed.
    """

    ping_interval_s: float = 3.0
    silent_s: float = 20.0
    node_death_s: float = 60.0
    retry_s: float = 0.5
    join_s: float = 300.0
    finish_s: float = 10.0


class Heartbeat:
    """Heartbeat of one actor: pings it, one at a time, and notes its last answer.

    Args:
        actor: It has a method ``ping`` that answers while others run.
        now: The time, in seconds.
    """

    def __init__(self, actor: Any, now: float) -> None:
        self._actor = actor
        self._heard = now
        self._question: Any = None

    def silence_s(self, now: float) -> float:
        """Return for how many seconds it has not answered; ask again where it has.

        Raises:
            RayError: It is dead.
        """
        if self._question is not None and ray.wait([self._question], timeout=0)[0]:
            ray.get(self._question)
            self._question = None
            self._heard = now
        if self._question is None:
            self._question = self._actor.ping.remote()
        return now - self._heard


class HeartbeatMonitor:
    """Monitor that finds silent processes.

    Args:
        silent_s: Seconds without a heartbeat after which a process counts as silent.
    """

    def __init__(self, silent_s: float) -> None:
        self._silent_s = silent_s
        self._heartbeats: dict[str, Heartbeat] = {}

    def silence(self, name: str, process: Any, now: float) -> WorkerLostError | None:
        """Ask a process, and return what is wrong once it has been silent for too long.

        Args:
            name: Of the process, for the message; another one has another name.
            process: Its actor, with a method ``ping``.
            now: Seconds that only grow.

        Raises:
            RayActorError: It died.
        """
        if name not in self._heartbeats:
            self._heartbeats[name] = Heartbeat(process, now)
        if self._heartbeats[name].silence_s(now) <= self._silent_s:
            return None
        return WorkerLostError(
            f"{name} has given no sign of life for {self._silent_s:g} s: its node is down, cut off "
            "or frozen"
        )


def find_dead_process(
    processes: Mapping[str, Any], watch: Watch, clock: Callable[[], float]
) -> WorkerLostError | None:
    """Kill the processes that answer a ping, and wait until Ray reports the dead one.

    Peers and broken connections tell of a death before Ray can say whether the node died too,
    and a trial that is restored before that would be given the dead node once more.

    Args:
        processes: Actors by name, at least one of which seems to be lost.
        watch: How long to wait.
        clock: Seconds that only grow.

    Returns:
        Which one died; None if Ray did not say.
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
