"""Workers without TensorFlow that meet, train and go wrong as a test asks for."""

import os
import signal
from pathlib import Path

from tune_tf.training.rendezvous import PortTakenError, WorkerInfo
from tune_tf.workload import Workload


class Script(Workload):
    """Says what goes wrong, and in which worker.

    Args:
        fault: A name of what goes wrong; None for nothing.
        rank: The worker with which it does.
        folder: Where a worker leaves its process id.
    """

    def __init__(self, fault, rank, folder):
        self.fault, self.rank, self.folder = fault, rank, folder

    def load_data(self, config):
        raise NotImplementedError

    def build_model(self, config):
        raise NotImplementedError


class NotInstalledHere(Workload):
    """A workload whose module is on the driver's machine only."""

    load_data = build_model = None

    def __reduce__(self):
        return __import__, ("only_on_the_laptop",)


class StandIn:
    """Answers what a worker answers."""

    def __init__(self, rank, host, name):
        self._rank, self._node = rank, host

    def meet(self, assignment):
        self._script = script = assignment.workload.load("here")
        mine = script.rank == self._rank
        with Path(script.folder, str(self._rank)).open("a") as file:
            file.write(f"{os.getpid()}\n")
        version = "2.20.1" if script.fault == "version" and mine else "2.21.0"
        num_gpus = 1 if script.fault == "gpus" and mine else 0
        return WorkerInfo(self._rank, self._node, "host:1", {"tensorflow": version}, num_gpus)

    def join(self, addresses):
        if self._script.fault == "port" and self._script.rank == self._rank:
            tried = Path(self._script.folder, str(self._rank)).read_text().splitlines()
            if len(tried) < 2:
                raise PortTakenError("another process took the port")
        self._wait_for_those_that_fail("port")

    def epoch(self):
        if self._script.rank == self._rank:
            if self._script.fault == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            if self._script.fault == "freezes":
                os.kill(os.getpid(), signal.SIGSTOP)
            if self._script.fault == "raises":
                raise ZeroDivisionError("of the user's making")
        self._wait_for_those_that_fail("dies", "freezes", "raises")
        return os.getpid()

    def finish(self):
        pass

    def _wait_for_those_that_fail(self, *faults):
        if self._script.fault in faults and self._script.rank != self._rank:
            tried = Path(self._script.folder, str(self._rank)).read_text().splitlines()
            if "port" not in faults or len(tried) < 2:
                signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
                signal.sigwait([signal.SIGUSR2])  # as a collective does whose peer is gone
