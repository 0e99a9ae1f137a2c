"""A process that trains subtasks without TensorFlow, and goes wrong as a test asks for."""

import os
import signal
import time
from pathlib import Path

from tune_tf.errors import WorkloadError
from tune_tf.trainables.subtasks.worker import SubtaskSnapshot
from tune_tf.trainables.trial_process import EpochReport
from tune_tf.workload import Workload


class Script(Workload):
    """Says which subtask goes wrong in which epoch, and how often.

    Args:
        folder: Where processes leave notes.
        fault: A name of what goes wrong; None for nothing.
        subtask: With which one; None for all.
        epoch: In which of its epochs.
        times: How often.
    """

    load_data = build_model = None

    def __init__(self, folder, fault=None, subtask=0, epoch=2, times=1):
        self.folder, self.fault = folder, fault
        self.subtask, self.epoch, self.times = subtask, epoch, times

    def strikes(self, subtask, epoch):
        """Return whether it goes wrong now, which is noted."""
        if self.fault is None or epoch != self.epoch or self.subtask not in (None, subtask):
            return False
        notes = Path(self.folder, "strikes")
        done = len(notes.read_text()) if notes.exists() else 0
        notes.write_text("x" * (done + 1))
        return done < self.times

    def wait_to_prepare(self):
        """Wait as long as the test has a file ``hold`` among the notes."""
        while Path(self.folder, "hold").exists():
            time.sleep(0.05)


class StandIn:
    """Answers what a worker answers: the loss of an epoch is its number, by subtask."""

    def __init__(self, rank, host, name):
        self._rank = rank
        self._epochs = {}
        self._void = 0

    def prepare(self, assignment):
        self._script = assignment.workload.load("here")
        self._script.wait_to_prepare()
        return f"device {self._rank}"

    def begin_trial(self, number, trial):
        if self._script.fault == "start":
            raise WorkloadError("there are no rows")
        self._epochs = {}

    def train_epoch(self, number, subtask, begins=False, state=None):
        if number <= self._void:
            return None
        if begins:
            self._epochs[subtask] = state.epoch if state else 0
        if subtask not in self._epochs:
            return None
        epoch = self._epochs.pop(subtask) + 1
        with Path(self._script.folder, f"trained-{os.getpid()}").open("a") as file:
            file.write(f"{subtask} {epoch}\n")
        if self._script.strikes(subtask, epoch):
            self._go_wrong()
        self._epochs[subtask] = epoch
        return EpochReport({"loss": 10.0 * subtask + epoch}, False, False, {})

    def state(self, subtask):
        if subtask not in self._epochs:
            return None
        return SubtaskSnapshot(self._epochs[subtask], {"trial.npz": b"here"})

    def hand_over(self, subtask):
        state = self.state(subtask)
        self._epochs.pop(subtask, None)
        return state

    def make_void(self, number):
        self._void = number

    def finish(self):
        pass

    def _go_wrong(self):
        if self._script.fault == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if self._script.fault == "freezes":
            os.kill(os.getpid(), signal.SIGSTOP)
        raise ZeroDivisionError("of the user's making")
