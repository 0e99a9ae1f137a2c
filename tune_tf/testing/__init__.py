"""Contract tests of Trainables, schedulers and workloads, and a chaos test of sweeps.

They need pytest, and run real trials on the connected Ray cluster.
"""

from tune_tf.testing.scheduler_contract import SchedulerContract, Script, ScriptedTrainable
from tune_tf.testing.trainable_contract import TrainableContract, TrainableResults
from tune_tf.testing.truth import TrialStates, assert_consistent_states, trial_states

__all__ = [
    "SchedulerContract",
    "Script",
    "ScriptedTrainable",
    "TrainableContract",
    "TrainableResults",
    "TrialStates",
    "assert_consistent_states",
    "trial_states",
]
