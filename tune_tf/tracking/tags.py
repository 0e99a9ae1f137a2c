"""Tags of a sweep's MLflow runs."""

from typing import Final

SWEEP_ID_TAG: Final = "tune_tf.sweep_id"
TRIAL_ID_TAG: Final = "tune_tf.trial_id"
RUN_TAG: Final = "tune_tf.run"
"""Ids of sweep and trial in one, by which a run is found quickly; see :func:`run_tag`."""

PARENT_RUN_TAG: Final = "mlflow.parentRunId"
TRIAL_NAME_TAG: Final = "tune_tf.trial_name"
TRIAL_NUMBER_TAG: Final = "tune_tf.trial_number"
DEVICES_TAG: Final = "tune_tf.devices"
NODE_TAG: Final = "tune_tf.node"
CLONED_FROM_TAG: Final = "tune_tf.cloned_from"

STOP_REASON_TAG: Final = "tune_tf.stop_reason"
STOP_CAUSE_TAG: Final = "tune_tf.stop_cause"
RUNG_TAG: Final = "tune_tf.rung"
FEASIBLE_TAG: Final = "tune_tf.feasible"
END_TAGS: Final = (STOP_REASON_TAG, STOP_CAUSE_TAG, RUNG_TAG, FEASIBLE_TAG)
"""Tags that only a trial that has ended has."""

BEST_TRIAL_TAG: Final = "tune_tf.best_trial_id"
BEST_CONFIG_TAG: Final = "tune_tf.best_config"
BEST_CHECKPOINT_TAG: Final = "tune_tf.best_checkpoint"
FINGERPRINT_TAG: Final = "tune_tf.fingerprint"

PARENT: Final = ""
"""In the place of a trial's id: the sweep's own run."""


def run_tag(sweep_id: str, trial_id: str) -> str:
    """Return the value of :data:`RUN_TAG` of a trial's run, or with :data:`PARENT` the sweep's."""
    return f"{sweep_id}/{trial_id}"
