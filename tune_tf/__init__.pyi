from .config import SweepConfig as SweepConfig
from .constraint import Constraint as Constraint
from .errors import TuneTfError as TuneTfError
from .estimate.planning import forecast_sweep as forecast_sweep
from .inspection import SweepView as SweepView
from .inspection import compare_sweeps as compare_sweeps
from .inspection import list_sweeps as list_sweeps
from .objective import Objective as Objective
from .outcome import Outcome as Outcome
from .parallelism import Asynchronous as Asynchronous
from .parallelism import Ensemble as Ensemble
from .parallelism import Folds as Folds
from .parallelism import Hybrid as Hybrid
from .parallelism import Mirrored as Mirrored
from .parallelism import ModelParallel as ModelParallel
from .parallelism import MultiWorker as MultiWorker
from .resources import TrialResources as TrialResources
from .results import SweepResult as SweepResult
from .schedulers import scheduler as scheduler
from .searchers import OptunaSearcher as OptunaSearcher
from .space import Choice as Choice
from .space import Constant as Constant
from .space import Float as Float
from .space import Int as Int
from .space import SearchSpace as SearchSpace
from .sweep import extend_sweep as extend_sweep
from .sweep import resume_sweep as resume_sweep
from .sweep import run_sweep as run_sweep
from .sweep import stop_sweep as stop_sweep
from .sweep import stop_trials as stop_trials
from .tracking import MLflowCallback as MLflowCallback
from .tracking.trial_run import mlflow_run as mlflow_run
from .trainables import AsynchronousTrainable as AsynchronousTrainable
from .trainables import FoldsTrainable as FoldsTrainable
from .trainables import MirroredTrainable as MirroredTrainable
from .trainables import ModelParallelTrainable as ModelParallelTrainable
from .trainables import MultiWorkerTrainable as MultiWorkerTrainable
from .trainables import OomRetries as OomRetries
from .trainables import trainable as trainable
from .validation import Validation as Validation
from .version import __version__ as __version__
from .workload import Data as Data
from .workload import Workload as Workload
from .workloads.keras_tuner.hypermodel import from_hypermodel as from_hypermodel

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
