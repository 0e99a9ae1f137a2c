"""The record of a sweep: what its driver knows of it, and what everything else shows of it."""

from tune_tf.record.database import RECORD
from tune_tf.record.driver_lock import has_driver
from tune_tf.record.history import (
    RecordedTrial,
    Session,
    SweepFingerprint,
    SweepHistory,
    recorded_results,
)
from tune_tf.record.record import Record, post_request
from tune_tf.record.trial_log import TRIAL_LOG, TrialLog, log_path, mask_log

__all__ = [
    "RECORD",
    "TRIAL_LOG",
    "Record",
    "RecordedTrial",
    "Session",
    "SweepFingerprint",
    "SweepHistory",
    "TrialLog",
    "has_driver",
    "log_path",
    "mask_log",
    "post_request",
    "recorded_results",
]
