"""Errors, named by what the caller does next.

Every error of tune_tf is a :class:`TuneTfError`; each leaf is also the builtin that a caller who
does not know tune_tf would catch.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

RAISED_AT = "Where it was raised:"
"""What a note of an error begins with that holds the traceback of another process."""


class TuneTfError(Exception):
    """Base of all errors that tune_tf raises on purpose."""


@dataclass(frozen=True)
class ErrorDetail:
    """One thing wrong with a sweep file or another set of settings.

    Args:
        where: Dotted path of the setting, for example ``space.filters``; empty for the whole.
        what: What was given, what is allowed and what to do.
        line: 1-based line in the file, if the setting came from one.
    """

    where: str
    what: str
    line: int | None = None

    def __str__(self) -> str:
        """Return ``line 4: space.filters: ...``, leaving out what is not known."""
        parts = [f"line {self.line}"] if self.line is not None else []
        if self.where:
            parts.append(self.where)
        return ": ".join([*parts, self.what])


class InvalidSettingsError(TuneTfError, ValueError):
    """Settings are wrong: correct them and start again. Holds all faults found, not the first.

    Args:
        faults: What is wrong, one entry a fault; a plain string is a fault without a place.
        source: The file the settings came from, if any.
    """

    def __init__(self, faults: Iterable[ErrorDetail | str], source: str | None = None) -> None:
        self.faults: tuple[ErrorDetail, ...] = tuple(
            ErrorDetail("", fault) if isinstance(fault, str) else fault for fault in faults
        )
        self.source = source
        lines = [str(fault) for fault in self.faults]
        if source is None and len(lines) == 1:
            text = lines[0]
        else:
            count = f"{len(lines)} fault{'s' if len(lines) != 1 else ''}"
            text = "\n".join(
                [f"{source}: {count}" if source else count, *(f"  {line}" for line in lines)]
            )
        super().__init__(text)

    def __reduce__(self) -> tuple[type, tuple[tuple[ErrorDetail, ...], str | None]]:
        """Pickle by the arguments, so that the error crosses processes whole."""
        return type(self), (self.faults, self.source)


class WorkloadError(TuneTfError, ValueError):
    """The user's workload does not keep its contract: mend its data or its model."""


class UnknownMetricError(WorkloadError, LookupError):
    """A metric that was asked for is not reported: choose one of those that are."""


class DivergedError(TuneTfError, ArithmeticError):
    """Training produced NaN or Inf."""


class UnavailableResourcesError(TuneTfError, RuntimeError):
    """The devices asked for are not there: ask for fewer, or add machines."""


class WorkerError(TuneTfError, RuntimeError):
    """A worker of a trial raised: mend what its text says."""


class WorkerLostError(WorkerError, ConnectionError):
    """A worker of a trial died, or the node it was on: restore the trial from its checkpoint."""


class CheckpointError(TuneTfError, RuntimeError):
    """A checkpoint cannot be read or does not fit the model: use another one."""


class UnknownSweepError(TuneTfError, LookupError):
    """No sweep of that name is stored: choose one of those that are."""


class UnknownTrialError(TuneTfError, LookupError):
    """The sweep has no such trial: choose one of those that it has."""


class StoreSilentError(TuneTfError, ConnectionError):
    """The MLflow store does not answer, or lacks what it is asked for: start it, or sync."""


class SweepConflictError(TuneTfError, RuntimeError):
    """The sweep cannot go on as asked: another driver holds it, or its settings changed."""


class DiskFullError(TuneTfError, OSError):
    """The disk is full: make room, then resume the sweep."""


def near_ones(name: object, known: Iterable[str]) -> str:
    """Return ``; did you mean 'adam'?`` for the nearest of ``known``, or an empty string."""
    near = get_close_matches(str(name), list(known), n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""


def one_of(known: Sequence[str]) -> str:
    """Return ``one of 'a', 'b'`` for an error text."""
    return "one of " + ", ".join(repr(name) for name in known)
