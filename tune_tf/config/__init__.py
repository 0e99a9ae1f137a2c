"""The settings of a sweep: the schema of a sweep file."""

from tune_tf.config.settings import (
    BudgetSettings,
    MLflowSettings,
    SchedulerSettings,
    SearcherSettings,
)
from tune_tf.config.sweep_config import SweepConfig
from tune_tf.config.workload_reference import import_workload

__all__ = [
    "BudgetSettings",
    "MLflowSettings",
    "SchedulerSettings",
    "SearcherSettings",
    "SweepConfig",
    "import_workload",
]
