"""The record of a sweep: what its driver knows of it, and what everything else shows of it."""

from tune_tf.record.database import RECORD
from tune_tf.record.driver_lock import has_driver
from tune_tf.record.history import (
    RecordedResult,
    RecordedTrial,
    Session,
    SweepFingerprint,
    SweepHistory,
    recorded_checkpoints,
    recorded_pickle,
    recorded_results,
    trial_results,
    trials_with_checkpoints,
)
from tune_tf.record.record import Record, post_request, recorded_form
from tune_tf.record.trial_log import TRIAL_LOG, TrialLog, log_path, mask_log

__all__ = [
    "RECORD",
    "TRIAL_LOG",
    "Record",
    "RecordedResult",
    "RecordedTrial",
    "Session",
    "SweepFingerprint",
    "SweepHistory",
    "TrialLog",
    "has_driver",
    "log_path",
    "mask_log",
    "post_request",
    "recorded_checkpoints",
    "recorded_form",
    "recorded_pickle",
    "recorded_results",
    "trial_results",
    "trials_with_checkpoints",
]
