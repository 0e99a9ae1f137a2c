"""Files of a running sweep for other processes: event log, control requests, trial logs."""

from tune_tf.events.event_history import (
    EVENT_LOG,
    EventHistory,
    Session,
    SweepFingerprint,
    TrialEvents,
)
from tune_tf.events.event_log import ControlChannel, EventLog, has_driver
from tune_tf.events.trial_log import TRIAL_LOG, TrialLog, log_path, mask_log

__all__ = [
    "EVENT_LOG",
    "TRIAL_LOG",
    "ControlChannel",
    "EventHistory",
    "EventLog",
    "Session",
    "SweepFingerprint",
    "TrialEvents",
    "TrialLog",
    "has_driver",
    "log_path",
    "mask_log",
]
