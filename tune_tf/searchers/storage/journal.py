"""Optuna journal file without disk synchronization, repaired when it is opened.

Optuna numbers trials by the entries that create them, and every later entry refers to a trial by
its number. If an entry that created a trial is lost, all later entries would apply to the wrong
trials. The numbers in later entries show how many such entries are lost; each is replaced by one
that creates an empty trial, which the remaining entries fill.
"""

import copy
import errno
import json
import logging
import os
import re
import threading
from collections import deque
from collections.abc import Container, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock
from optuna.trial import FrozenTrial, TrialState

_log = logging.getLogger(__name__)

_NEW_STUDY, _NEW_TRIAL = 0, 4
_FIELDS: Final[Mapping[int, frozenset[str]]] = {
    _NEW_STUDY: frozenset({"study_name", "directions"}),
    1: frozenset({"study_id"}),
    2: frozenset({"study_id", "user_attr"}),
    3: frozenset({"study_id", "system_attr"}),
    _NEW_TRIAL: frozenset({"study_id", "datetime_start"}),
    5: frozenset({"trial_id", "param_name", "param_value_internal", "distribution"}),
    6: frozenset({"trial_id", "state", "values"}),
    7: frozenset({"trial_id", "step", "intermediate_value"}),
    8: frozenset({"trial_id", "user_attr"}),
    9: frozenset({"trial_id", "system_attr"}),
    10: frozenset(),
}
"""What an entry holds beside ``op_code`` and ``worker_id``, by ``op_code`` (Optuna 3.1 to 5.0)."""

_BEGINNING = b'{"op_code":'
_CODE = re.compile(rb'"op_code":\s*(\d+)')


class JournalFile(JournalFileBackend):
    """Journal that other Optuna processes can read and write concurrently.

    Optuna synchronizes the disk for each of the dozen lines of a trial, in the loop that feeds all
    trials. Here a line is written in one call and survives a kill of this process; only a power
    failure can lose the last seconds, as with Ray Tune's own state.

    Attributes:
        changed: Ids of trials in the entries that were read, oldest first, for a reader to remove.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._write_lock = JournalFileSymlinkLock(str(path))
        super().__init__(str(path), lock_obj=self._write_lock)
        self.changed: deque[int] = deque()
        self._end: tuple[int, int] | None = None  # number of entries, and size of the file

    def repair(self) -> None:
        """Keep the readable entries of a damaged journal, and log what is lost.

        Damaged lines are moved to a file beside the journal whose name ends in ``.damaged``.

        Raises:
            ValueError: Nothing is readable, or the entry that created a study is lost.
            OSError: The repaired journal cannot be written; the damaged one is unchanged.
        """
        with self._locked():
            lines = self._path.read_bytes().split(b"\n")
            unfinished = lines.pop()
            if unfinished:
                lines.append(unfinished)
            entries = [_parse_entry(line) for line in lines]
            if None not in entries and not unfinished:
                return
            recovered, num_recreated = _recovered_lines(lines, entries, cut_off=bool(unfinished))
            damaged = [line for line, entry in zip(lines, entries, strict=True) if entry is None]
            aside = self._path.with_name(f"{self._path.name}.damaged")
            with aside.open("ab") as file:
                file.writelines(line + b"\n" for line in damaged)
            repaired = self._path.with_name(f"{self._path.name}.repaired")
            with repaired.open("wb") as file:
                file.writelines(line + b"\n" for line in recovered)
                file.flush()
                os.fsync(file.fileno())
            repaired.chmod(self._path.stat().st_mode)
            repaired.replace(self._path)
        _log.warning(
            "the study journal %s is damaged: %d entries are kept, %d unreadable lines moved to "
            "%s, %d trials lost their first entry and were created again; trials may lack "
            "parameters, values or outcomes",
            self._path,
            len(entries) - len(damaged),
            len(damaged),
            aside,
            num_recreated,
        )

    def read_logs(self, log_number_from: int) -> Generator[dict[str, Any], None, None]:
        """Yield the entries from a number on; the file is opened only if it has grown.

        Optuna asks for new ones at each access to a study.
        """
        size = self._path.stat().st_size
        if self._end == (log_number_from, size):
            return
        number = log_number_from
        for entry in super().read_logs(log_number_from):
            if "trial_id" in entry:
                self.changed.append(entry["trial_id"])
            number += 1
            yield entry
        self._end = number, size

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append entries, one JSON text per line; all of them or, on a full disk, none.

        Raises:
            OSError: The disk is full.
        """
        text = "".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs).encode()
        with self._locked(), self._path.open("ab", buffering=0) as file:
            before = file.seek(0, os.SEEK_END)
            if file.write(text) < len(text):
                file.truncate(before)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock that every Optuna process takes before writing."""
        self._write_lock.acquire()
        try:
            yield
        finally:
            self._write_lock.release()


def _recovered_lines(
    lines: list[bytes], entries: list[dict[str, Any] | None], *, cut_off: bool
) -> tuple[list[bytes], int]:
    """Return the readable lines with entries for lost trials, and the number of those."""
    if not any(entries):
        is_partial = len(lines) == 1 and (cut_off or not lines[0])
        if is_partial and _BEGINNING.startswith(lines[0][: len(_BEGINNING)]):
            return [], 0  # nothing but a part of the very first line
        raise ValueError("no line is an entry of an Optuna journal")
    replacements = _replacement_entries(lines, entries)
    recovered: list[bytes] = []
    for index, (line, entry) in enumerate(zip(lines, entries, strict=True)):
        recovered += [line] if entry is not None else replacements.get(index, [])
    return recovered, sum(map(len, replacements.values()))


def _parse_entry(line: bytes) -> dict[str, Any] | None:
    """Return a line's entry; None if it is unreadable."""
    try:
        entry = json.loads(line)
    except ValueError:  # UnicodeDecodeError included
        return None
    if not isinstance(entry, dict) or not isinstance(entry.get("worker_id"), str):
        return None
    fields = _FIELDS.get(entry.get("op_code", -1))
    return entry if fields is not None and fields <= entry.keys() else None


def _replacement_entries(
    lines: list[bytes], entries: list[dict[str, Any] | None]
) -> dict[int, list[bytes]]:
    """Return the entries that replace damaged lines, by the line's index."""
    replacements: dict[int, list[bytes]] = {}
    trial_entries = [entry for entry in entries if entry and entry["op_code"] == _NEW_TRIAL]
    latest = trial_entries[0] if trial_entries else {"study_id": 0, "datetime_start": None}
    num_trials, last_damage = 0, None
    names: set[str] = set()
    for index, entry in enumerate(entries):
        missing = 0
        if entry is None:
            last_damage = index
            code = _CODE.search(lines[index])
            # Every opening of a study repeats this entry, without effect.
            if code and int(code[1]) == _NEW_STUDY and not names:
                raise ValueError("the entry that created its study is damaged")
            missing = int(bool(code and int(code[1]) == _NEW_TRIAL))
        elif entry["op_code"] == _NEW_STUDY:
            names.add(entry["study_name"])
        elif entry.get("study_id", -1) >= len(names):
            raise ValueError("the entry that created its study is lost")
        elif entry["op_code"] == _NEW_TRIAL:
            num_trials += 1
            latest = entry
        else:
            missing = max(0, entry.get("trial_id", -1) + 1 - num_trials)
        if missing and last_damage is not None:
            replacements.setdefault(last_damage, []).extend([_new_trial_entry(latest)] * missing)
            num_trials += missing
    return replacements


def _new_trial_entry(neighbour: Mapping[str, Any]) -> bytes:
    """Return an entry that creates an empty trial with the study and time of another entry."""
    entry = {
        "op_code": _NEW_TRIAL,
        "worker_id": "repair",
        "study_id": neighbour["study_id"],
        "datetime_start": neighbour["datetime_start"],
    }
    return json.dumps(entry, separators=(",", ":")).encode()


_FINISHED = tuple(state for state in TrialState if state.is_finished())


@dataclass
class _Listing:
    """Trials of one study, by number."""

    trials: list[FrozenTrial] = field(default_factory=list)
    unfinished: dict[int, int] = field(default_factory=dict)  # number by trial id
    changed: set[int] = field(default_factory=set)  # trial ids


class IncrementalJournalStorage(JournalStorage):
    """Optuna journal storage whose list of trials is updated rather than built anew.

    Optuna's own visits all trials of a study at each ask, twice. As finished trials do not change,
    only new and changed ones are looked up here.
    """

    def __init__(self, journal: JournalFile) -> None:
        super().__init__(journal)
        self._journal = journal
        self._listings: dict[int, _Listing] = {}
        self._listings_lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        """Read the journal anew in the process that unpickles it."""
        return type(self), (self._journal,)

    def get_all_trials(
        self,
        study_id: int,
        deepcopy: bool = True,
        states: Container[TrialState] | None = None,
    ) -> list[FrozenTrial]:
        """Return a study's trials in some states, by number."""
        with self._listings_lock:
            listing = self._updated_listing(study_id)
            if states is None:
                trials = listing.trials.copy()
            elif any(state in states for state in _FINISHED):
                trials = [trial for trial in listing.trials if trial.state in states]
            else:
                unfinished = (listing.trials[number] for number in listing.unfinished.values())
                trials = [trial for trial in unfinished if trial.state in states]
        return copy.deepcopy(trials) if deepcopy else trials

    def _updated_listing(self, study_id: int) -> _Listing:
        self.get_study_name_from_id(study_id)  # reads new entries, and refuses an unknown study
        self._listings.setdefault(study_id, _Listing())
        with suppress(IndexError):
            while True:  # another thread may be reading
                changed_id = self._journal.changed.popleft()
                for listing in self._listings.values():
                    listing.changed.add(changed_id)
        listing = self._listings[study_id]
        for trial_id in listing.unfinished.keys() & listing.changed:
            number = listing.unfinished[trial_id]
            trial = listing.trials[number] = self.get_trial(trial_id)
            if trial.state.is_finished():
                del listing.unfinished[trial_id]
        listing.changed.clear()
        while (new_id := self._id_of(study_id, len(listing.trials))) is not None:
            trial = self.get_trial(new_id)
            if not trial.state.is_finished():
                listing.unfinished[new_id] = len(listing.trials)
            listing.trials.append(trial)
        return listing

    def _id_of(self, study_id: int, number: int) -> int | None:
        try:
            return self.get_trial_id_from_study_id_trial_number(study_id, number)
        except KeyError:
            return None
