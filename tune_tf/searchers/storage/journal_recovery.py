"""Recovery of a damaged Optuna journal.

Optuna numbers trials by the entries that create them, and every later entry refers to a trial by
its number. If an entry that created a trial is lost, all later entries would apply to the wrong
trials. The numbers in later entries show how many such entries are lost; each is replaced by one
that creates an empty trial, which the remaining entries fill.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_MAKES_STUDY, _MAKES_TRIAL = 0, 4
_FIELDS: Final[Mapping[int, frozenset[str]]] = {
    _MAKES_STUDY: frozenset({"study_name", "directions"}),
    1: frozenset({"study_id"}),
    2: frozenset({"study_id", "user_attr"}),
    3: frozenset({"study_id", "system_attr"}),
    _MAKES_TRIAL: frozenset({"study_id", "datetime_start"}),
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


@dataclass(frozen=True)
class RecoveredJournal:
    """Journal after its repair.

    Args:
        text: The journal; all entries are readable.
        damaged: The unreadable lines; None if the journal was intact.
        num_kept: Number of readable entries.
        num_filled_in: Number of trials whose lost first entry was replaced.
    """

    text: bytes
    damaged: bytes | None
    num_kept: int
    num_filled_in: int

    @property
    def num_damaged(self) -> int:
        """Number of unreadable lines."""
        return (self.damaged or b"").count(b"\n")


def recover_journal(text: bytes) -> RecoveredJournal:
    """Return a journal with its readable entries.

    Raises:
        ValueError: Nothing is readable, or the entry that created a study is lost.
    """
    lines = text.split(b"\n")
    unfinished = lines.pop()
    if unfinished:
        lines.append(unfinished)
    entries = [_parse_entry(line) for line in lines]
    num_kept = sum(entry is not None for entry in entries)
    if num_kept == len(lines) and not unfinished:
        return RecoveredJournal(text, None, num_kept, 0)
    if lines == [unfinished] and _BEGINNING.startswith(unfinished[: len(_BEGINNING)]):
        return RecoveredJournal(b"", unfinished + b"\n", 0, 0)  # the very first line was cut off
    if lines and not num_kept:
        raise ValueError("no line is an entry of an Optuna journal")
    filled_in = _lost_trials(lines, entries)
    kept: list[bytes] = []
    damaged: list[bytes] = []
    for index, (line, entry) in enumerate(zip(lines, entries, strict=True)):
        if entry is None:
            damaged.append(line + b"\n")
            kept += filled_in.get(index, ())
        else:
            kept.append(line + b"\n")
    return RecoveredJournal(
        b"".join(kept), b"".join(damaged), num_kept, sum(map(len, filled_in.values()))
    )


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


def _lost_trials(
    lines: list[bytes], entries: list[dict[str, Any] | None]
) -> dict[int, list[bytes]]:
    """Return the entries that replace damaged lines, by the line's index."""
    found: dict[int, list[bytes]] = {}
    made = [entry for entry in entries if entry and entry["op_code"] == _MAKES_TRIAL]
    latest = made[0] if made else {"study_id": 0, "datetime_start": None}
    num_trials, last_damage = 0, None
    names: set[str] = set()
    for index, entry in enumerate(entries):
        missing = 0
        if entry is None:
            last_damage = index
            code = _CODE.search(lines[index])
            # Every opening of a study repeats this entry, without effect.
            if code and int(code[1]) == _MAKES_STUDY and not names:
                raise ValueError("the entry that created its study is damaged")
            missing = int(bool(code and int(code[1]) == _MAKES_TRIAL))
        elif entry["op_code"] == _MAKES_STUDY:
            names.add(entry["study_name"])
        elif entry.get("study_id", -1) >= len(names):
            raise ValueError("the entry that created its study is lost")
        elif entry["op_code"] == _MAKES_TRIAL:
            num_trials += 1
            latest = entry
        else:
            missing = max(0, entry.get("trial_id", -1) + 1 - num_trials)
        if missing and last_damage is not None:
            found.setdefault(last_damage, []).extend([_new_trial_entry(latest)] * missing)
            num_trials += missing
    return found


def _new_trial_entry(neighbour: Mapping[str, Any]) -> bytes:
    """Return an entry that creates an empty trial with the study and time of another entry."""
    entry = {
        "op_code": _MAKES_TRIAL,
        "worker_id": "repair",
        "study_id": neighbour["study_id"],
        "datetime_start": neighbour["datetime_start"],
    }
    return json.dumps(entry, separators=(",", ":")).encode() + b"\n"
