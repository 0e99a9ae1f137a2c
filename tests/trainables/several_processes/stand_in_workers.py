"""Workers without TensorFlow that meet, train and go wrong as a test asks for."""

import os
import signal
from pathlib import Path

from tune_tf.workload import Workload


class Script(Workload):
    """Says what goes wrong, and in which worker.

    Args:
        fault: A name of what goes wrong; None for nothing.
        rank: The worker with which it does.
        folder: Where a worker leaves its process id.
    """

    load_data = build_model = None

    def __init__(self, fault, rank, folder):
        self.fault, self.rank, self.folder = fault, rank, folder


class NotInstalledHere(Workload):
    """A workload whose module is on the driver's machine only."""

    load_data = build_model = None

    def __reduce__(self):
        return __import__, ("only_on_the_laptop",)


class StandIn:
    """Answers what a worker answers."""

    def __init__(self, rank, host, name):
        self._rank, self._name = rank, name

    def __str__(self):
        return self._name

    def set_up(self, setup):
        self._script = script = setup.workload.load("here")
        self._fault = script.fault if script.rank == self._rank else None
        with self._file().open("a") as file:
            file.write(f"{os.getpid()}\n")
        return "CPU:0 on here"

    def address(self):
        return "host:1"

    def join(self, addresses):
        pass

    def epoch(self):
        if self._fault == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if self._fault == "raises":
            raise ZeroDivisionError("of the user's making")
        self._wait_for_those_that_fail("dies", "raises")
        return os.getpid()

    def finish(self):
        pass

    def _file(self):
        return Path(self._script.folder, str(self._rank))

    def _wait_for_those_that_fail(self, *faults):
        if self._script.fault in faults:
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
            signal.sigwait([signal.SIGUSR2])  # as a collective does whose peer is gone
