"""Rules by which the outcome of a trial is inferred from what is known of its end."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from tune_tf.errors import RAISED_AT, message_lines, strip_colors
from tune_tf.outcome import Outcome, is_finite

_FAILURE = re.compile(r"^Failure # \d+ \(occurred at .*\)$", re.MULTILINE)
_RAISED = re.compile(
    r'^[ \t]*File ".*", line \d+.*\n(?:[ \t]+\S.*\n)*((?:[\w<>]+\.)*(\w+)(?:: |$))', re.MULTILINE
)
"""The end of a traceback: its last frame, and the class of the error."""

_CAUSE_LENGTH = 500

_End = TypeVar("_End", bound=Outcome | None)


def infer_outcome(
    end: _End,
    *,
    recorded: Outcome | None = None,
    finite: bool | None = True,
    error: str | None = None,
) -> Outcome | _End:
    """Infer the outcome of a trial from the most reliable evidence of its end.

    That is the text of an error; then what the trainable, the scheduler or an earlier session
    recorded, except for a completion without finite metrics; then divergence, by ``finite`` (None
    if nothing was reported); then the ``end`` that the calls of Tune suggest, None for no end.
    """
    if error is not None:
        return Outcome.of_error(last_failure(error))
    if recorded is not None and (finite or recorded is not Outcome.COMPLETED):
        return recorded
    return Outcome.DIVERGED if finite is False else end


def divergence_cause(
    result: Mapping[str, Any], metrics: Iterable[str], iteration: int | None
) -> str:
    """Return a sentence that names those of the metrics that are not finite."""
    problems = [
        f"{name} is {result[name]}" if name in result else f"{name} is not reported"
        for name in metrics
        if not is_finite(result.get(name))
    ]
    at = "" if iteration is None else f" at iteration {iteration}"
    return f"{' and '.join(problems)}{at}"


def error_cause(error: str) -> str:
    """Return in one line what the text of an error says, such as ``ValueError: no rows``.

    ``error`` is a traceback as Python or Ray writes it, or a message; the last failure counts.
    """
    text = strip_colors(last_failure(error)).partition(f"\n{RAISED_AT}\n")[0]
    name, message = "", text
    for raised in _RAISED.finditer(text):
        name, message = f"{raised[2]}: ", text[raised.end(1) :]
    said = " ".join(message_lines(message)).removeprefix(name)
    cause = f"{name}{said}".removesuffix(": ")[:_CAUSE_LENGTH]
    return cause.encode(errors="backslashreplace").decode()  # undecodable names of files


def last_failure(error: str) -> str:
    """Return the last failure in an error's text, to which Tune appends each failure."""
    return _FAILURE.split(error)[-1]
