"""What a sweep leaves in its folder for others to read at any time: its diary, its trials' logs."""

from tune_tf.diary.diary import Diary, is_driven
from tune_tf.diary.pages import DIARY, Pages, Session, TrialPage
from tune_tf.diary.trial_log import TRIAL_LOG, TrialLog, log_path

__all__ = [
    "DIARY",
    "TRIAL_LOG",
    "Diary",
    "Pages",
    "Session",
    "TrialLog",
    "TrialPage",
    "is_driven",
    "log_path",
]
