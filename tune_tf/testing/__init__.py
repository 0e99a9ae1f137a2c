"""Contracts that schedulers, searchers and callbacks keep together, to run in one's own tests.

They need pytest, and start real sweeps of a few scripted trials on the Ray cluster that is
connected.
"""

from tune_tf.testing.scheduler_contract import SchedulerContract
from tune_tf.testing.script import Script, ScriptedTrainable
from tune_tf.testing.truth import Standing, assert_one_truth, standings

__all__ = [
    "SchedulerContract",
    "Script",
    "ScriptedTrainable",
    "Standing",
    "assert_one_truth",
    "standings",
]
