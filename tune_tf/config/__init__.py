"""Settings of a sweep and the schema of sweep files."""

from tune_tf.config.scheduler_settings import (
    SCHEDULERS,
    SchedulerSettings,
    parse_scheduler_settings,
)
from tune_tf.config.section_models import (
    BudgetSettings,
    ClusterSettings,
    MLflowSettings,
    SearcherSettings,
)
from tune_tf.config.sweep_config import (
    SCHEMA_COMMENT,
    SCHEMA_FILE,
    SweepConfig,
    schema_text,
)
from tune_tf.config.workload_reference import import_workload

__all__ = [
    "SCHEDULERS",
    "SCHEMA_COMMENT",
    "SCHEMA_FILE",
    "BudgetSettings",
    "ClusterSettings",
    "MLflowSettings",
    "SchedulerSettings",
    "SearcherSettings",
    "SweepConfig",
    "import_workload",
    "parse_scheduler_settings",
    "schema_text",
]
