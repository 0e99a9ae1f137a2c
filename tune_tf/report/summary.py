"""Summary of a sweep: the best trial, outcomes and cost."""

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from tune_tf.formatting import counted, duration, value_text
from tune_tf.outcome import Outcome
from tune_tf.report.plots.axis import Axis, Floats
from tune_tf.report.plots.outcome_style import STYLES
from tune_tf.report.report_data import ReportData
from tune_tf.result_keys import NOT_SHARED
from tune_tf.space import Choice, Constant, Float, Int, Parameter
from tune_tf.space.parameter import is_number

_NEAR_AN_END = 0.02
_LEAST_OPTIONS = 3  # that have ends
_FEW_TEXTS, _MANY_REASONS = 3, 10
_FEW_CHANGES = 8  # from one epoch to the next, for a median


@dataclass(frozen=True)
class BestParameter:
    """Parameter of the best trial with its formatted value."""

    path: str
    value: str
    searched: str  # range or options
    note: str = ""  # on the value


@dataclass(frozen=True)
class FailureGroup:
    """Numbers of the trials that failed in the same way with the same cause."""

    phrase: str
    cause: str
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Summary:
    """Summary of a sweep in a few sentences."""

    headline: str
    comparison: str
    outcomes: str
    cost: str
    frozen_layers: str
    fingerprint: str
    settings: tuple[BestParameter, ...]
    failures: tuple[FailureGroup, ...]

    @classmethod
    def of(cls, record: ReportData) -> "Summary":
        """Summarize a sweep."""
        return cls(
            headline=_headline(record),
            comparison=_comparison(record),
            outcomes=_outcomes(record),
            cost=_cost(record),
            frozen_layers=_frozen_layers(record),
            fingerprint=_fingerprint(record),
            settings=_settings(record),
            failures=_failures(record),
        )


def _headline(record: ReportData) -> str:
    metric = record.objective.metric
    best = record.best
    if best is None:
        if not record.trials:
            return "No trial was started."
        feasible = "" if record.feasible.all() else " and satisfied the constraints"
        return f"No trial reported a finite {metric}{feasible}, so there is no best one."
    text = f"Best {metric}: {value_text(float(best.metrics[metric]))}, by trial {best.number}"
    if best.keeps_earlier:
        text += f" in iteration {best.kept_iteration} of {best.iterations}"
    if best.outcome is not Outcome.COMPLETED:
        text += f", which did not complete ({STYLES[best.outcome].phrase})"
    text = f"{text}."
    if best.test_metrics:
        tests = (f"{name} {value_text(it)}" for name, it in sorted(best.test_metrics.items()))
        text += f" On the test rows, which no trial has seen: {', '.join(tests)}."
    return text


def _comparison(record: ReportData) -> str:
    if record.best is None:
        return ""
    finite = ~np.isnan(record.values)
    pool, noun = finite & record.completed, "completed trial"
    if pool.sum() < 2:
        pool, noun = finite, "trial"
    if pool.sum() < 2:
        return "There is no other trial to compare it with."
    best = float(record.best.metrics[record.objective.metric])
    median = float(np.median(record.values[pool]))
    if best == median:
        difference = "equal to the best"
    else:
        comparative = "better" if record.objective.better(best, median) else "worse"
        difference = f"the best is {value_text(abs(best - median))} {comparative}"
    text = f"The median of {counted(int(pool.sum()), noun)} is {value_text(median)}: {difference}."
    return text + _noise(record, best, record.values[pool])


def _noise(record: ReportData, best: float, values: Floats) -> str:
    """Return a sentence if the lead over other trials is within the noise of single epochs.

    The noise is the median change from one epoch to the next in the last third of curves.
    """
    changes = [
        np.abs(np.diff(curve.values[-1 - len(curve.values) // 3 :]))
        for curve, completed in zip(record.curves, record.completed, strict=True)
        if completed
    ]
    finite = [change for each in changes for change in each if math.isfinite(change)]
    if len(finite) < _FEW_CHANGES:
        return ""
    noise = float(np.median(finite))
    num_close = int((np.abs(values - best) < noise).sum())
    if num_close < 2:
        return ""
    return (
        f" The first {num_close:,} are closer than the values of a trial change from one epoch to "
        f"the next at its end ({value_text(noise)}, median): their order is mostly chance."
    )


def _outcomes(record: ReportData) -> str:
    counts = [
        f"{len(indices):,} {STYLES[outcome].phrase}" for outcome, indices in reversed(record.groups)
    ]
    if not counts:
        return ""
    text = f"{counted(len(record.trials), 'trial')}: {', '.join(counts)}."
    infeasible = int((~record.feasible).sum())
    if infeasible:
        bounds = ", ".join(map(str, record.result.config.constraints))
        verb = "violates" if infeasible == 1 else "violate"
        text += f" {infeasible:,} {verb} the constraints ({bounds})."
    if record.result.interrupted:
        text += (
            " The sweep has not ended: it was interrupted, or was running when this was written."
        )
    if record.result.ended_early:
        text += f" It ended early: {record.masked(record.result.ended_early)}."
    return text


def _cost(record: ReportData) -> str:
    trained = sum(trial.iterations for trial in record.trials)
    spent_s = sum(curve.trained_s for curve in record.curves)
    text = f"{counted(trained, 'iteration')} trained"
    if not math.isnan(record.wall_s):
        text += f" in {duration(record.wall_s)} ({duration(spent_s)} of training in all trials)"
    limit = record.result.config.scheduler.max_t
    stopped = [trial for trial in record.trials if trial.outcome is Outcome.PRUNED]
    saved = sum(max(0, limit - trial.iterations) for trial in stopped)
    full = limit * len(record.trials)
    if saved:
        text += (
            f". Early stopping saved {counted(saved, 'iteration')}: all trials run to their limit "
            f"of {limit:,} would have taken {full:,}, so it trained {trained / full:.0%} of that"
        )
    return f"{text}."


def _frozen_layers(record: ReportData) -> str:
    """Return a sentence on the outputs of frozen layers; empty without such layers."""
    texts = Counter(curve.frozen_layers for curve in record.curves if curve.frozen_layers)
    reasons = Counter({text: texts.pop(text) for text in [*texts] if text.startswith(NOT_SHARED)})
    common = [*texts.most_common(_FEW_TEXTS), *reasons.most_common(_MANY_REASONS)]
    parts = [f"{counted(count, 'trial')} {text}" for text, count in common]
    if len(common) < len(texts) + len(reasons):
        parts.append("tune-tf show has those of other trials")
    return record.masked(f"Frozen layers: {'; '.join(parts)}.") if parts else ""


def _fingerprint(record: ReportData) -> str:
    """Return a sentence on the fingerprint; empty for a sweep that is not reproducible."""
    found = record.result.fingerprint
    return record.masked(f"Fingerprint {found}: {found.origin}.") if found else ""


def _settings(record: ReportData) -> tuple[BestParameter, ...]:
    if record.best_index is None:
        return ()
    space, config = record.result.config.space.parameters, record.configs[record.best_index]
    return tuple(
        BestParameter(
            path,
            value_text(value, limit=200),
            _searched(space.get(path), record),
            _edge(space.get(path), config.get(path)),
        )
        for path, value in record.masked_configs[record.best_index].items()
    )


def _searched(parameter: Parameter | None, record: ReportData) -> str:
    match parameter:
        case Float(low, high, log=log, step=step) | Int(low, high, log=log, step=step):
            steps = f" in steps of {step:g}" if step not in (None, 1) else ""
            return f"{low:g} to {high:g}{steps}{', logarithmic' if log else ''}"
        case Choice(options):
            texts = (record.masked(value_text(option, limit=40)) for option in options)
            return f"one of {', '.join(texts)}"
        case Constant():
            return "constant"
    return ""


def _edge(parameter: Parameter | None, value: object) -> str:
    """Return a note if a value lies at an end of its range, beyond which better ones may exist."""
    if isinstance(parameter, Choice) and is_number(value):
        options = [option for option in parameter.options if is_number(option)]
        if len(options) < max(_LEAST_OPTIONS, len(parameter.options)):
            return ""
        if value in (min(options), max(options)):
            end, more = ("smallest", "smaller") if value == min(options) else ("largest", "larger")
            return f"the {end} of its options: consider {more} ones"
        return ""
    if not isinstance(parameter, Float | Int) or not isinstance(value, int | float):
        return ""
    log = parameter.log and min(parameter.low, value) > 0
    axis = Axis("", low=float(parameter.low), high=float(parameter.high), log=log)
    position = float(axis.scale([value])[0])
    if position <= _NEAR_AN_END:
        return "at the lower end of its range: consider widening it"
    if position >= 1 - _NEAR_AN_END:
        return "at the upper end of its range: consider widening it"
    return ""


def _failures(record: ReportData) -> tuple[FailureGroup, ...]:
    numbers_of: dict[tuple[str, str], list[int]] = {}
    for trial in record.trials:
        if trial.outcome in (Outcome.ERROR, Outcome.OOM, Outcome.DIVERGED):
            cause = value_text(record.cause(trial), limit=300) or "unknown cause"
            numbers_of.setdefault((STYLES[trial.outcome].phrase, cause), []).append(trial.number)
    groups = [FailureGroup(*key, tuple(numbers)) for key, numbers in numbers_of.items()]
    return tuple(sorted(groups, key=lambda group: -len(group.numbers)))
