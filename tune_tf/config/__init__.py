"""Settings of a sweep and the schema of sweep files."""

from tune_tf.config.budget_settings import BudgetSettings
from tune_tf.config.cluster_settings import ClusterSettings
from tune_tf.config.scheduler_settings import SCHEDULERS, SchedulerSettings, scheduler_settings
from tune_tf.config.schema_file import FIRST_LINE, SCHEMA_FILE, schema_text, write_schema
from tune_tf.config.searcher_settings import SearcherSettings
from tune_tf.config.settings import MLflowSettings
from tune_tf.config.sweep_config import SweepConfig
from tune_tf.config.workload_reference import import_workload
from tune_tf.config.yaml_text import yaml_text

__all__ = [
    "FIRST_LINE",
    "SCHEDULERS",
    "SCHEMA_FILE",
    "BudgetSettings",
    "ClusterSettings",
    "MLflowSettings",
    "SchedulerSettings",
    "SearcherSettings",
    "SweepConfig",
    "import_workload",
    "scheduler_settings",
    "schema_text",
    "write_schema",
    "yaml_text",
]
