"""What a sweep leaves in its folder for others to read at any time: its diary, its trials' logs."""

from tune_tf.events.control_channel import Mailbox
from tune_tf.events.event_history import DIARY, Pages, Session, TrialPage
from tune_tf.events.event_log import Diary, is_driven
from tune_tf.events.trial_log import TRIAL_LOG, TrialLog, log_path, mask_log

__all__ = [
    "DIARY",
    "TRIAL_LOG",
    "Diary",
    "Mailbox",
    "Pages",
    "Session",
    "TrialLog",
    "TrialPage",
    "is_driven",
    "log_path",
    "mask_log",
]
