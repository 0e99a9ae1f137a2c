"""How a chief of TensorFlow's parameter servers trains an epoch."""

from typing import Any

import tensorflow as tf

from tune_tf.parallelism import Mirrored
from tune_tf.training.gradient_loop import GradientLoop, gradient_program_of
from tune_tf.training.loop import LoopTrial
from tune_tf.training.program import Program
from tune_tf.training.shared_program import SharedProgram
from tune_tf.training.strategy_replicas import StrategyReplicas
from tune_tf.workload import Workload


class SharedLoop(GradientLoop):
    """Epochs of shared models, one trial after another.

    Args:
        workload: As in :class:`GraphLoop`.
        replicas: Where the models are.
        spread: As in :class:`GraphLoop`.
    """

    program_class: type[Program] = SharedProgram

    def __init__(self, workload: Workload, replicas: StrategyReplicas, spread: Mirrored) -> None:
        super().__init__(workload, replicas, spread)
        self._coordinator = replicas.coordinator

    @property
    def program(self) -> SharedProgram:
        """What the trial computes."""
        return _of(self._current)

    def train(self, batches: list[Any], epoch: int) -> None:
        """Have every batch applied once; those whose gradient came too old are done again.

        Args:
            batches: Numbers of their rows.
            epoch: Number of the epoch, which the program has begun.
        """
        program, rows = self.program, self._current.rows.train
        counters = program.counters()
        left = list(range(len(batches)))
        while left:
            for number in left:
                batch = tf.nest.map_structure(lambda a, i=number: tf.gather(a, batches[i]), rows)
                begun = [tf.constant(value) for value in counters[number]]
                ids = (tf.constant(number, tf.int64), tf.constant(epoch, tf.int64))
                self._coordinator.schedule(program.step, args=(batch, begun, *ids))
            # What a callback or the validation traces while a step runs can stop both for ever:
            # a graph is sent to the workers with Python's lock held.
            self._coordinator.join()
            left = program.left()

    def _rehearse(self, trial: LoopTrial) -> bool:
        return _of(trial).rehearse(trial.rows.train)


def _of(trial: LoopTrial) -> SharedProgram:
    program = gradient_program_of(trial)
    if not isinstance(program, SharedProgram):
        raise TypeError(f"{type(program).__name__} shares nothing")
    return program
