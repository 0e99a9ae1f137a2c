"""Exceptions of tune_tf, named by what the caller does next.

All derive from :class:`TuneTfError`; each leaf class also derives from a matching builtin.
"""

import contextlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches

RAISED_AT = "Raised at:"
"""First line of an exception note that holds the traceback of another process."""

_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_DETAILS = re.compile(rf"^\s*({RAISED_AT}|(?:Call )?[Aa]rguments received by ).*", re.M | re.DOTALL)
_FRAME = re.compile(r'^([ \t]*)File ".*", line \d+.*\n(?:\1[ \t]+\S.*\n?)*', re.M)
_INSERTIONS = re.compile(
    r"\[\[\{\{node .*?\}\}\]\]|\{\{function_node .*?\}\}|\[Op:\w+\](?: name: \S*)?"
    r"|^\s*\(\d+\) [A-Z_]+: +| +Label values: .*|^\t(?:\w+_)?(?:name|id|pid|namespace|ip): .*",
    re.M,
)
_FRAMING = re.compile(
    r"Graph execution error:|Detected at node .*|Node: '.*'|in user code:"
    r"|<stack traces unavailable>|Traceback \(most recent call last\):|.*ray::.*\(pid=.*"
    r"|\d+ (?:root error\(s\) found|successful operations|derived errors ignored)\."
    r"|[\s^~]*"
)
"""A whole line of those that TensorFlow, Python and Ray put around an error's message."""

_CALL = "Exception encountered when calling "  # Keras, before the message of what it called


class TuneTfError(Exception):
    """Base class of all exceptions that tune_tf raises deliberately."""


@dataclass(frozen=True)
class ErrorDetail:
    """One error in a sweep file or in other settings.

    Args:
        where: Dotted path of the setting, such as ``space.filters``; empty for the whole.
        what: The value given, the rule and the remedy.
        line: 1-based line number, if the setting came from a file.
    """

    where: str
    what: str
    line: int | None = None

    def within(self, section: str) -> "ErrorDetail":
        """Return the error with the path of its section before its own."""
        return ErrorDetail(".".join(filter(None, [section, self.where])), self.what)

    def __str__(self) -> str:
        """Return ``line 4: space.filters: ...``, without unknown parts."""
        line = "" if self.line is None else f"line {self.line}"
        return ": ".join(filter(None, [line, self.where, self.what]))


class InvalidSettingsError(TuneTfError, ValueError):
    """Invalid settings: correct them and start again. Collects all errors, not only the first.

    Args:
        details: The errors, or the only one; a plain string is an error without a location.
        source: File that the settings came from, if any.
    """

    def __init__(
        self, details: Iterable[ErrorDetail | str] | ErrorDetail | str, source: str | None = None
    ) -> None:
        if isinstance(details, ErrorDetail | str):
            details = [details]
        self.details: tuple[ErrorDetail, ...] = tuple(
            ErrorDetail("", each) if isinstance(each, str) else each for each in details
        )
        self.source = source
        lines = [str(each) for each in self.details]
        if source is None and len(lines) == 1:
            super().__init__(lines[0])
            return
        count = f"{len(lines)} error{'s' if len(lines) != 1 else ''}"
        header = f"{source}: {count}" if source else count
        super().__init__("\n  ".join([header, *lines]))

    def __reduce__(self) -> tuple[type, tuple[tuple[ErrorDetail, ...], str | None]]:
        """Pickle by arguments, so that the details survive between processes."""
        return type(self), (self.details, self.source)


class WorkloadError(TuneTfError, ValueError):
    """The workload violates its contract: fix its data or its model."""


class UnknownMetricError(WorkloadError, LookupError):
    """The requested metric is not reported: choose one that is."""


class UnavailableResourcesError(TuneTfError, RuntimeError):
    """The requested devices are not available: request fewer, or add machines."""


class WorkerError(TuneTfError, RuntimeError):
    """A worker of a trial raised an exception: fix what the message says."""


class WorkerLostError(WorkerError, ConnectionError):
    """A worker of a trial or its node died: restore the trial from its checkpoint."""


class CheckpointError(TuneTfError, RuntimeError):
    """A checkpoint is unreadable or does not match the model: use another one."""


class DamagedCheckpointError(CheckpointError):
    """A checkpoint is missing or truncated: use an older one, or start over."""


class UnknownSweepError(TuneTfError, LookupError):
    """No stored sweep has that name: choose an existing one."""


class UnknownTrialError(TuneTfError, LookupError):
    """The sweep has no such trial: choose an existing one."""


class StoreUnavailableError(TuneTfError, ConnectionError):
    """The MLflow store does not respond, or lacks the requested item: start it, or sync."""


class SweepConflictError(TuneTfError, RuntimeError):
    """The sweep cannot continue: another driver holds its lock, or its settings changed."""


class UnwritableStorageError(TuneTfError, OSError):
    """The sweep's folder cannot be written to, or its disk is full: mend that, then resume."""


@contextlib.contextmanager
def note_interrupt(note: str) -> Iterator[None]:
    """Add to an interrupt in this context what the user does next."""
    try:
        yield
    except KeyboardInterrupt as error:
        error.add_note(note)
        raise


@contextlib.contextmanager
def adding_errors_to(errors: list[ErrorDetail], section: str = "") -> Iterator[None]:
    """Add the errors of invalid settings in this context to a list, each below a section."""
    try:
        yield
    except InvalidSettingsError as error:
        errors += [detail.within(section) for detail in error.details]


def did_you_mean(name: object, names: Iterable[str]) -> str:
    """Return ``; did you mean 'adam'?`` for the closest match, or an empty string.

    A name that begins with what was written is closest: ``grace`` means ``grace_period``.
    """
    text, names = str(name), list(names)
    longer = [each for each in names if len(text) > 1 and each.startswith(text)]
    matches = sorted(longer, key=len) or get_close_matches(text, names, n=1, cutoff=0.6)
    return f"; did you mean {matches[0]!r}?" if matches else ""


def message_lines(message: str) -> list[str]:
    """Return the lines of an error's message that say what is wrong.

    Left out is what TensorFlow, Keras and Ray put around it: stack frames, names of nodes,
    arguments, values of tensors, colors.
    """
    text = _FRAME.sub("\n", _DETAILS.sub("", strip_colors(message)))
    lines = [line.strip() for line in _INSERTIONS.sub("", text).splitlines()]
    lines = [line for line in lines if not _FRAMING.fullmatch(line)]
    if len(lines) > 1 and lines[0].startswith(_CALL):
        lines[:2] = [" ".join(lines[:2])]
    return lines


def first_line(error: BaseException) -> str:
    """Return the first line of an error that says what is wrong; without one, its class name."""
    return next(iter(message_lines(str(error))), type(error).__name__)


def strip_colors(text: str) -> str:
    """Remove terminal colors."""
    return _COLOR.sub("", text)


def one_of(names: Iterable[str]) -> str:
    """Return ``one of 'a', 'b'`` for an error message."""
    return "one of " + ", ".join(repr(name) for name in names)
