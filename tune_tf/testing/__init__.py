"""Contract test suites for Trainables and schedulers, with their searchers and callbacks.

They need pytest, and run real trials on the connected Ray cluster.
"""

from tune_tf.testing.scheduler_contract import SchedulerContract, Script, ScriptedTrainable
from tune_tf.testing.trainable_contract import Played, TrainableContract
from tune_tf.testing.truth import TrialStates, assert_consistent_states, trial_states

__all__ = [
    "Played",
    "SchedulerContract",
    "Script",
    "ScriptedTrainable",
    "TrainableContract",
    "TrialStates",
    "assert_consistent_states",
    "trial_states",
]
