"""The diary that the driver of a sweep keeps in its folder, for others to read at any time."""

from tune_tf.diary.diary import Diary, is_driven
from tune_tf.diary.pages import DIARY, Pages, Session, TrialPage

__all__ = ["DIARY", "Diary", "Pages", "Session", "TrialPage", "is_driven"]
