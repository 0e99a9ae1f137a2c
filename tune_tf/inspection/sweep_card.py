"""HTML card of a sweep for notebooks."""

import math
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from tune_tf.formatting import printable, value_text
from tune_tf.ranking import best_so_far

if TYPE_CHECKING:
    from tune_tf.inspection.sweep_view import SweepView

_WIDTH, _HEIGHT = 260, 60
_COLOURS = {
    "running": "#2484C6",
    "completed": "#009E73",
    "pruned": "#E69F00",
    "out_of_budget": "#56B4E9",
    "diverged": "#CC79A7",
    "oom": "#9A4F96",
    "error": "#D55E00",
}
_OTHER = "#8C8C8C"


def sweep_card(sweep: "SweepView") -> str:
    """Render a sweep as HTML without scripts and external styles."""
    total = sweep.config.budget.num_samples
    failures = [printable(failure) for failure in sweep.result.failures]
    counts = " ".join(
        f'<span style="color:{_COLOURS.get(state, _OTHER)}">&#9632;</span> '
        f"{count} {escape(state.replace('_', ' '))}"
        for state, count in sweep.counts.items()
    )
    parts = [
        f"<b>{escape(sweep.sweep_id)}</b> &nbsp;{sweep.state.value}, "
        f"{sweep.num_ended}/{total} trials, {sweep.num_iterations} epochs",
        _bar(sweep),
        counts,
        *(f'<span style="color:{_COLOURS["error"]}">{escape(each)}</span>' for each in failures),
    ]
    if sweep.ended_early:
        parts.append(f"Ended early: {escape(sweep.ended_early)}")
    if sweep.best is not None:
        metric = sweep.config.leading_objective.metric
        active = sweep.active_config(sweep.best).items()
        config = ", ".join(f"{name}={value_text(value)}" for name, value in active)
        parts += [
            f"Best {escape(metric)} <b>{value_text(sweep.best_value)}</b> by trial "
            f"{sweep.best.number}: {escape(config)}",
            _curve(_running_best(sweep)),
        ]
    rows = "".join(f'<div style="margin:3px 0">{part}</div>' for part in parts if part)
    return f'<div style="font-family:sans-serif;font-size:13px;max-width:60em">{rows}</div>'


def _running_best(sweep: "SweepView") -> list[float]:
    """Return the best value after each ended trial."""
    objective = sweep.config.leading_objective
    ended = [trial for trial in sweep.trials if trial.has_ended and trial.ended_s is not None]
    ended.sort(key=lambda trial: trial.ended_s or 0.0)
    values = (
        trial.result.metrics.get(objective.metric, math.nan)
        for trial in ended
        if trial.result.feasible
    )
    return best_so_far(values, objective)


def _bar(sweep: "SweepView") -> str:
    share = min(1.0, sweep.num_ended / sweep.config.budget.num_samples)
    return (
        '<div style="background:#d9dee4;height:6px;border-radius:3px"><div style="'
        f'background:#2484C6;height:6px;border-radius:3px;width:{share:.0%}"></div></div>'
    )


def _curve(values: Sequence[float]) -> str:
    """Return values as an SVG line; empty for fewer than two."""
    if len(values) < 2:
        return ""
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    points = " ".join(
        f"{index / (len(values) - 1) * _WIDTH:.1f},{(high - value) / span * _HEIGHT + 4:.1f}"
        for index, value in enumerate(values)
    )
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT + 8}" role="img" '
        f'aria-label="best value after each trial">'
        f'<polyline points="{points}" fill="none" stroke="#2484C6" stroke-width="2"/></svg>'
        f" {value_text(values[0])} &rarr; {value_text(values[-1])}"
    )
