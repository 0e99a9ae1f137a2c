"""How a trial ended, from what Tune tells and what it knows besides."""

from collections.abc import Mapping
from typing import Any

from tune_tf.outcome import Outcome
from tune_tf.searchers import witness
from tune_tf.searchers.facts import changed
from tune_tf.searchers.goals import Goals
from tune_tf.searchers.page import Entry
from tune_tf.searchers.verdict import TIME, Verdict, before_change, judge


def failure(trial_id: str) -> Verdict:
    """Return how a trial ended that Tune calls failed."""
    text = witness.error_text(trial_id)
    cause = witness.last_line(text) or "the trial failed; Tune keeps its error file"
    return Verdict(Outcome.of_error(text), cause=cause)


def ending(
    trial_id: str,
    result: Mapping[str, Any] | None,
    last: Mapping[str, Any],
    goals: Goals,
    entry: Entry | None,
    shown: int | None,
    told: Mapping[str, Any],
) -> Verdict:
    """Return how a trial ended that did not fail, with the values of its own config.

    Args:
        trial_id: Tune's id of the trial.
        result: The last result, as Tune hands it over; None of a trial that was paused or waited.
        last: The last result, whether Tune hands it over or not; empty if there is none.
        goals: The metrics.
        entry: What is known of the trial.
        shown: Iteration of the last result that was shown; None if none was.
        told: The stop criteria that Tune told the searcher.
    """
    stamped = Outcome.of_result(last) is not None
    if not stamped and not result and witness.at_limit(trial_id, last, told):
        # It was paused at its very end.
        verdict = judge(last, goals, last_seen=None, own_end=lambda _: True)
    else:
        was_stopped = TIME in (result or {}) and not (result or {}).get("done")
        verdict = judge(
            last if stamped else result,
            goals,
            # One that was the trial's last by design may have been shown before a kill, too.
            last_seen=shown if was_stopped or entry is None else entry.seen,
            own_end=lambda at: witness.own_end(trial_id, at, told),
        )
    return before_change(verdict, entry.values if entry else (), changed(last))
