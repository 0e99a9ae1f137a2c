"""Summary of a sweep: the best trial, outcomes and cost."""

import math

from tune_tf.formatting import counted, duration, value_text
from tune_tf.outcome import Outcome
from tune_tf.report.report_data import ReportData
from tune_tf.space import Choice, Float, Int, Parameter
from tune_tf.space.parameter import is_number

_NEAR_AN_END = 0.02
_LEAST_OPTIONS = 3  # that have ends


def headline(data: ReportData) -> str:
    """Return the sentence on the best trial."""
    metric, best = data.objective.metric, data.result.best_if_any
    if not data.trials:
        return "No trial was started."
    if best is None or data.best is None:
        violated = any(not trial.result.feasible for trial in data.trials)
        feasible = " and satisfied the constraints" if violated else ""
        return f"No trial reported a finite {metric}{feasible}, so there is no best one."
    text = f"Best {metric}: {value_text(data.best.value)}, by trial {best.number}"
    if best.keeps_earlier:
        text += f" in epoch {best.kept_iteration} of {best.iterations}"
    if not data.best.is_completed:
        text += f", which did not complete ({data.best.style.phrase})"
    if best.test_metrics:
        tests = (f"{name} {value_text(it)}" for name, it in sorted(best.test_metrics.items()))
        text += f". On the test rows, which no trial has seen: {', '.join(tests)}"
    return f"{text}."


def sentences(data: ReportData) -> list[str]:
    """Return sentences on the trials as a whole, without those that have nothing to say."""
    fingerprint = data.result.fingerprint
    found = [
        _outcomes(data),
        _cost(data),
        f"Fingerprint {fingerprint}: {fingerprint.origin}." if fingerprint else "",
    ]
    return [sentence for sentence in found if sentence]


def best_parameters(data: ReportData) -> list[tuple[str, str, str]]:
    """Return path, value, and what was searched, for each parameter of the best trial."""
    space, config = data.result.config.space.parameters, data.best.config if data.best else {}
    return [
        (path, value_text(value, limit=200), _searched(space[path], value))
        for path, value in config.items()
    ]


def _outcomes(data: ReportData) -> str:
    counts = [f"{len(them):,} {them[0].style.phrase}" for them in data.by_state.values()]
    text = f"{counted(len(data.trials), 'trial')}: {', '.join(counts)}." if counts else ""
    infeasible = sum(not trial.result.feasible for trial in data.trials)
    if infeasible:
        bounds = ", ".join(map(str, data.result.config.constraints))
        verb = "violates" if infeasible == 1 else "violate"
        text += f" {infeasible:,} {verb} the constraints ({bounds})."
    if data.result.interrupted:
        text += (
            " The sweep has not ended: it was interrupted, or was running when this was written."
        )
    if data.result.ended_early:
        text += f" It ended early: {data.result.ended_early}."
    return text


def _cost(data: ReportData) -> str:
    trained = sum(trial.result.iterations for trial in data.trials)
    spent_s = sum(trial.view.trained_s for trial in data.trials)
    text = f"{counted(trained, 'epoch')} trained"
    if data.wall_s is not None:
        text += f" in {duration(data.wall_s)} ({duration(spent_s)} of training in all trials)"
    limit = data.result.config.epochs
    stopped = [trial.result for trial in data.trials if trial.result.outcome is Outcome.PRUNED]
    saved = sum(max(0, limit - trial.iterations) for trial in stopped)
    full = limit * len(data.trials)
    if saved:
        text += (
            f". Early stopping saved {counted(saved, 'epoch')}: all trials run to their limit of "
            f"{limit:,} would have taken {full:,}, so it trained {trained / full:.0%} of that"
        )
    return f"{text}."


def _searched(parameter: Parameter, value: object) -> str:
    """Return the values that were searched, with a note if the best one lies at their end."""
    match parameter:
        case Float(low, high, log=log) | Int(low, high, log=log):
            text, noun = f"{low:g} to {high:g}{', logarithmic' if log else ''}", "range"
        case Choice(options):
            text = f"one of {', '.join(value_text(option, limit=40) for option in options)}"
            if len(options) < _LEAST_OPTIONS or not all(map(is_number, options)):
                return text
            low, high, log, noun = min(options), max(options), False, "options"
        case _:
            return "constant"
    if not is_number(value):
        return text
    ends = [float(low), float(high), float(value)]  # type: ignore[arg-type]
    low, high, at = map(math.log, ends) if log and min(ends) > 0 else ends
    for name, distance in (("lower", at - low), ("upper", high - at)):
        if distance <= _NEAR_AN_END * (high - low):
            return f"{text} (the best is at the {name} end of its {noun}: consider widening)"
    return text
