"""tune_tf: hyperparameter search over TensorFlow/Keras models, as a Ray Tune plugin.

The vocabulary (spaces, objectives, resources, workloads) is imported at once and needs no
framework. Whatever brings in Ray, TensorFlow, Optuna or MLflow is imported on first use.
"""

import lazy_loader as _lazy

from tune_tf.config import SweepConfig
from tune_tf.constraint import Constraint
from tune_tf.errors import TuneTfError
from tune_tf.objective import Objective
from tune_tf.outcome import Outcome
from tune_tf.parallelism import (
    Asynchronous,
    Ensemble,
    Folds,
    Hybrid,
    Mirrored,
    ModelParallel,
    MultiWorker,
)
from tune_tf.resources import TrialResources
from tune_tf.space import Choice, Constant, Float, Int, SearchSpace
from tune_tf.validation import Validation
from tune_tf.version import __version__
from tune_tf.workload import Data, Workload

__getattr__, _list, _ = _lazy.attach(
    __name__,
    submod_attrs={
        "schedulers": ["scheduler"],
        "searchers": ["OptunaSearcher"],
        "tracking": ["MLflowCallback"],
        "tracking.trial_run": ["mlflow_run"],
        "trainables": [
            "AsynchronousTrainable",
            "FoldsTrainable",
            "MirroredTrainable",
            "ModelParallelTrainable",
            "MultiWorkerTrainable",
            "OomRetries",
            "trainable",
        ],
        "sweep": ["extend_sweep", "resume_sweep", "run_sweep", "stop_sweep", "stop_trials"],
        "estimate.planning": ["forecast_sweep"],
        "results": ["SweepResult"],
        "inspection": ["SweepView", "compare_sweeps", "list_sweeps"],
        "workloads.keras_tuner.hypermodel": ["from_hypermodel"],
    },
)

__all__ = [
    "Asynchronous",
    "AsynchronousTrainable",
    "Choice",
    "Constant",
    "Constraint",
    "Data",
    "Ensemble",
    "Float",
    "Folds",
    "FoldsTrainable",
    "Hybrid",
    "Int",
    "MLflowCallback",
    "Mirrored",
    "MirroredTrainable",
    "ModelParallel",
    "ModelParallelTrainable",
    "MultiWorker",
    "MultiWorkerTrainable",
    "Objective",
    "OomRetries",
    "OptunaSearcher",
    "Outcome",
    "SearchSpace",
    "SweepConfig",
    "SweepResult",
    "SweepView",
    "TrialResources",
    "TuneTfError",
    "Validation",
    "Workload",
    "__version__",
    "compare_sweeps",
    "extend_sweep",
    "forecast_sweep",
    "from_hypermodel",
    "list_sweeps",
    "mlflow_run",
    "resume_sweep",
    "run_sweep",
    "scheduler",
    "stop_sweep",
    "stop_trials",
    "trainable",
]


def __dir__() -> list[str]:
    """List the public names."""
    return sorted({*__all__, *_list()})
