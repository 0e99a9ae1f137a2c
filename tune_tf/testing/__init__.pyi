from .fake_gpus import FakeGpus, gpu_error
from .scheduler_contract import SchedulerContract, Script, ScriptedTrainable
from .trainable_contract import TrainableContract, TrainableResults
from .truth import TrialStates, assert_consistent_states, trial_states

__all__ = [
    "FakeGpus",
    "SchedulerContract",
    "Script",
    "ScriptedTrainable",
    "TrainableContract",
    "TrainableResults",
    "TrialStates",
    "assert_consistent_states",
    "gpu_error",
    "trial_states",
]
