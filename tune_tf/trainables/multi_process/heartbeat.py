"""Whether processes that take long over an answer are alive."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, RayActorError

from tune_tf.errors import WorkerLostError


@dataclass(frozen=True)
class Watch:
    """How long processes may take before one counts as lost, all in seconds.

    Args:
        pulse_s: Between two questions whether they are alive.
        silent_s: Without an answer to them.
        verdict_s: After that, for Ray to find out whether the node died: the trial fails then.
        retry_s: Between two questions to a process that cannot be reached.
        join_s: For all workers to connect.
        finish_s: For a trial's end, before the processes are killed.
    """

    pulse_s: float = 3.0
    silent_s: float = 20.0
    verdict_s: float = 60.0
    retry_s: float = 0.5
    join_s: float = 300.0
    finish_s: float = 10.0


class Pulse:
    """Asks an actor whether it is alive, one question at a time, and notes when it said so.

    Args:
        actor: It has a method ``pulse`` that answers while others run.
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
            self._question = self._actor.pulse.remote()
        return now - self._heard


class Pulses:
    """Asks processes for signs of life.

    Args:
        silent_s: Seconds without one after which a process counts as silent.
    """

    def __init__(self, silent_s: float) -> None:
        self._silent_s = silent_s
        self._pulses: dict[str, Pulse] = {}

    def silence(self, name: str, process: Any, now: float) -> WorkerLostError | None:
        """Ask a process, and return what is wrong once it has been silent for too long.

        Args:
            name: Of the process, for the message; another one has another name.
            process: Its actor, with a method ``pulse``.
            now: Seconds that only grow.

        Raises:
            RayActorError: It died.
        """
        if name not in self._pulses:
            self._pulses[name] = Pulse(process, now)
        if self._pulses[name].silence_s(now) <= self._silent_s:
            return None
        return WorkerLostError(
            f"{name} has given no sign of life for {self._silent_s:g} s: its node is down, cut off "
            "or frozen"
        )


def verdict(
    processes: Mapping[str, Any], watch: Watch, clock: Callable[[], float]
) -> WorkerLostError | None:
    """End the processes that are alive at once, and wait until Ray knows which one is not.

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
    deadline = clock() + watch.verdict_s
    while suspects and clock() < deadline:
        pulses = {process.pulse.remote(): name for name, process in suspects.items()}
        told, _ = ray.wait(list(pulses), num_returns=len(pulses), timeout=watch.pulse_s)
        for pulse in told:
            name = pulses[pulse]
            try:
                ray.get(pulse)
            except ActorUnavailableError:
                time.sleep(watch.retry_s)
            except RayActorError as error:
                return WorkerLostError(f"{name} died: {error}")
            else:
                ray.kill(suspects.pop(name))
    return None
