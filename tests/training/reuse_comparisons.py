"""Comparisons of reused with fresh processes, for the cases of a subject of the reuse contract."""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from reuse_cases import KerasSubject
from reuse_values import (
    NOT_BY_FIT,
)
from tune_tf.training.reuse.reuse_check import SWITCH

from tune_tf.data import rows_of
from tune_tf.testing.reuse_contract import SEED, compare_runs, run_apart
from tune_tf.training.core.loop import GraphLoop
from tune_tf.training.core.program import Program
from tune_tf.training.core.replicas import Replicas
from tune_tf.training.devices import Devices
from tune_tf.training.input.device_rows import place_rows
from tune_tf.workload import Config, Workload


@dataclass
class SubjectComparison:
    """Comparison of reused with fresh processes for the configs of one subject.

    Args:
        name: Name of the subject.
        labels: Descriptions of the configs.
        programs: Number of the program that trained each config; negative if none did.
        errors: Descriptions of the differences; empty if reuse is exact.
        refused: Errors by label, of configs that fail in a fresh process too.
        num_distinct: Number of configs whose results differ from those of the first.
        unvaried: Arguments for which no other value works.
    """

    name: str
    labels: list[str]
    programs: list[int]
    errors: list[str]
    refused: dict[str, str]
    num_distinct: int
    unvaried: list[str] = field(default_factory=list)


def compare_subject(
    workload: Workload,
    configs: Sequence[Config],
    *,
    name: str,
    labels: Sequence[str] = (),
    replicas: Replicas | None = None,
    shared_only: bool = False,
    **how: Any,
) -> SubjectComparison:
    """Compare reused with fresh processes; passes ``how`` on to ``compare_runs``.

    With ``shared_only``, only configs that share a program are trained: much faster, since most
    values change the graph. All others are traced anew, as in a fresh process.
    """
    labels = list(labels or map(repr, configs))
    labels = [f"{x} ({i})" if labels.count(x) > 1 else x for i, x in enumerate(labels)]
    replicas = replicas or Replicas(Devices(("CPU:0",)))
    served = run_apart(lambda: _programs(workload, configs, replicas))
    programs = [p if isinstance(p, int) else -1 - i for i, p in enumerate(served)]
    chosen = list(range(len(configs)))
    refused = {}
    if shared_only:
        refused = {
            label: repr(p)
            for label, p in zip(labels, served, strict=True)
            if not isinstance(p, int)
        }
        chosen = [i for i in chosen if programs.count(programs[i]) > 1]
    by_label = {labels[i]: configs[i] for i in chosen}
    found = compare_runs(workload, by_label, replicas=replicas, **how)
    errors = [f"{name}: {error}" for error in found.errors]
    return SubjectComparison(
        name, labels, programs, errors, refused | found.refused, found.num_distinct
    )


def _programs(workload: Workload, configs: Sequence[Config], replicas: Replicas) -> list[Any]:
    """Return the number of each config's program, or its error, without tracing."""
    with mock.patch.dict(os.environ, {SWITCH: "off"}):  # the check would trace
        loop = GraphLoop(replicas)
    kept: list[Program] = []
    numbers: list[Any] = []
    for config in configs:
        try:
            rows = place_rows(rows_of(workload.load_data(config)), replicas)
            loop.start(workload, dict(config), rows, SEED)
            program = loop.trial.program
            loop.finish()
        except Exception as error:
            numbers.append(error)
            continue
        if program not in kept:
            kept.append(program)
        numbers.append(kept.index(program))
    return numbers


def compare_arguments(
    subject: KerasSubject, chosen: Callable[[str], bool] = lambda argument: True, **how: Any
) -> SubjectComparison:
    """Compare reused with fresh processes for each chosen argument of a class."""
    configs, unvaried = subject.configs(chosen)
    labels = [subject.label(config) for config in configs]
    if subject.name in NOT_BY_FIT:
        how["by_fit"] = False
    how["not_by_fit"] = [
        label
        for label, config in zip(labels, configs, strict=True)
        if f"{subject.name}.{config.get('argument')}" in NOT_BY_FIT
    ]
    found = compare_subject(subject.workload, configs, labels=labels, name=subject.name, **how)
    found.unvaried = unvaried
    return found


def write_table(found: Iterable[SubjectComparison]) -> str:
    """Format comparisons as a table: configs, programs, configs that share one, and errors."""
    rows = sorted(found, key=lambda reuse: reuse.name)
    pairs = sum(max(0, len(reuse.labels) - 1) for reuse in rows)
    num_distinct = sum(reuse.num_distinct for reuse in rows)
    lines = [
        f"{len(rows)} subjects, {pairs} pairs, {num_distinct} of them with an effect, "
        f"{sum(len(reuse.errors) for reuse in rows)} errors",
        "",
        "subject | values | programs | shared by",
    ]
    for reuse in rows:
        shared = "; ".join(" = ".join(group) for group in _sharing(reuse)) or "none"
        lines.append(f"{reuse.name} | {len(reuse.labels)} | {len(set(reuse.programs))} | {shared}")
        lines += [f"    ERROR {error}" for error in reuse.errors]
        lines += [f"    refused {label}: {error}" for label, error in reuse.refused.items()]
        if reuse.unvaried:
            lines.append(f"    not varied: {', '.join(reuse.unvaried)}")
    return "\n".join(lines) + "\n"


def _sharing(reuse: SubjectComparison) -> list[list[str]]:
    """Return the groups of labels whose configs share a program."""
    groups: dict[int, list[str]] = {}
    for label, program in zip(reuse.labels, reuse.programs, strict=True):
        groups.setdefault(program, []).append(label)
    return [group for group in groups.values() if len(group) > 1]
