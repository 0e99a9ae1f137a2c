"""Plots of the report: Optuna's figures of a sweep's trials, in the colours of their states."""

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any, Final

import numpy as np
import optuna
import plotly.graph_objects as go
from optuna import visualization
from optuna.trial import FrozenTrial, TrialState
from plotly.colors import sample_colorscale

from tune_tf.formatting import counted
from tune_tf.outcome_style import STYLES
from tune_tf.report.report_data import ReportData, ReportTrial
from tune_tf.report.study import recorded_state, study_of

_LOG = logging.getLogger(__name__)

_MAX_LINES = 300  # of a plot with a line for each trial
_MIN_COMPLETED = 4  # to compare parameters
_MIN_LOG_RATIO = 100
_SLICES_PER_ROW = 4
_GREY, _BLUE = "#b0b7bf", STYLES["completed"].colour


@dataclass(frozen=True)
class Plot:
    """Figures with instructions for reading them, or the reason why there are none.

    Args:
        by_state: Whether their colours are those of the trials' states.
        wide: Whether a narrow screen must scroll them.
    """

    caption: str
    figures: Sequence[go.Figure] = ()
    by_state: bool = True
    wide: bool = False


@contextmanager
def _optuna_silenced() -> Iterator[None]:
    """Silence what Optuna logs of new studies and warns of small ones, which captions say."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(verbosity)


def plot_history(data: ReportData) -> Plot:
    """Plot the value of each trial and the best value so far."""
    study = study_of(data, [data.objective])
    figure = visualization.plot_optimization_history(study, target_name=data.objective.metric)
    figure.update_traces(marker_color=_BLUE, selector={"name": data.objective.metric})
    figure.update_traces(line={"color": _GREY, "shape": "hv"}, selector={"mode": "lines"})
    for trials in data.by_state.values():
        others = [each for each in trials if each.value is not None and not each.is_completed]
        figure.add_scatter(
            x=[each.number for each in others],
            y=[each.value for each in others],
            mode="markers",
            marker_color=trials[0].style.colour,
            name=trials[0].style.word,
        )
    _scale_values(figure, _with_value(data))
    text = "Each mark is the value of a trial; the line is the best of the completed ones so far."
    return Plot(text + _on_constraints(data), [_laid_out(figure, 420)])


def plot_learning_curves(data: ReportData) -> Plot:
    """Plot the leading objective of each trial by epoch."""
    curves = [trial for trial in data.ranking if trial.curve]
    if not curves:
        return Plot(f"no trial's folder holds a result with a finite {data.objective.metric}")
    chosen, part = _spread(curves)
    study = study_of(data, [data.objective], _only(chosen, TrialState.PRUNED))
    figure = visualization.plot_intermediate_values(study)
    by_name = {f"Trial{trial.number}": trial for trial in chosen}
    for line in figure.data:
        trial = by_name[line.name]
        is_best = trial is data.best
        line.update(
            line={"color": trial.style.colour, "width": 4 if is_best else 1.2},
            opacity=1 if is_best else 0.6,
            mode="lines" if len(trial.curve) > 1 else "markers",
            hovertemplate=f"trial {trial.number}, {trial.style.word}<br>%{{y}} in epoch %{{x}}"
            "<extra></extra>",
        )
    figure.data = sorted(figure.data, key=lambda line: by_name[line.name] is data.best)
    figure.update_layout(xaxis_title="epoch", yaxis_title=data.objective.metric)
    _scale_values(figure, chosen)
    text = "Each line is a trial, up to the epoch at which it ended; the thick one is the best."
    return Plot(text + part, [_laid_out(figure, 460)])


def plot_pareto_fronts(data: ReportData) -> Plot:
    """Plot each pair of objectives, with the trials of the Pareto front of all of them."""
    objectives = data.result.config.objectives
    if not data.result.pareto_front:
        return Plot("no feasible trial completed with a finite value of each")
    study = study_of(data, objectives)
    figures = []
    for pair in combinations(range(len(objectives)), 2):
        figure = visualization.plot_pareto_front(
            study,
            targets=partial(_values_of, pair),
            target_names=[f"{objectives[at].metric} ({objectives[at].mode})" for at in pair],
        )
        figure.update_traces(marker={"color": _GREY, "showscale": False, "size": 7})
        figure.data[-1].marker.update(color=_BLUE, size=11)  # the front
        figures.append(_laid_out(figure, 460))
    front = counted(len(data.result.pareto_front), "completed trial")
    text = f"Blue: the {front} that no other one beats in all objectives. Grey: the others."
    return Plot(text, figures, by_state=False)


def plot_importances(data: ReportData) -> Plot:
    """Plot how much each parameter decides which completed trials are among the best.

    Source: Watanabe et al., IJCAI 2023; https://arxiv.org/abs/2304.10255
    """
    completed = [trial for trial in _with_value(data) if trial.is_completed]
    number = counted(len(completed), "completed trial")
    if len(completed) < _MIN_COMPLETED:
        return Plot(f"{_MIN_COMPLETED} completed trials are needed to compare, not {number}")
    study = study_of(data, [data.objective])
    importances = optuna.importance.get_param_importances(study, normalize=False)
    total = sum(importances.values())
    if not total:
        return Plot("the best completed trials differ from the others in no parameter")
    shares = {path: value / total for path, value in reversed(importances.items())}
    bars = go.Bar(x=[*shares.values()], y=[*shares], orientation="h", marker_color=_BLUE)
    figure = go.Figure(bars).update_layout(xaxis_title="share")
    text = (
        "How much each parameter decides whether a trial is among the best tenth in "
        f"{data.objective.metric} (PED-ANOVA over {number}). With fewer than some tens of trials, "
        "it is no more than a hint."
    )
    return Plot(text, [_laid_out(figure, 130 + 30 * len(data.searched))], by_state=False)


def plot_slices(data: ReportData) -> Plot:
    """Plot the value of each trial by each parameter."""
    trials = {trial.number: trial for trial in _with_value(data)}
    study = study_of(data, [data.objective], _only([*trials.values()], TrialState.COMPLETE))
    figures = []
    for first in range(0, len(data.searched), _SLICES_PER_ROW):
        paths = data.searched[first : first + _SLICES_PER_ROW]
        figure = visualization.plot_slice(study, paths, target_name=data.objective.metric)
        for marks in figure.select_traces({"name": "Feasible Trial"}):
            those = [trials[number] for number in marks.marker.color or ()]
            colours = [trial.style.colour for trial in those]
            marks.marker.update(color=colours, showscale=False)
            marks.text = [f"trial {trial.number}" for trial in those]
        for axis in figure.select_xaxes({"type": "log"}):
            parameter: Any = data.result.config.space.parameters[axis.title.text]
            ticks = np.geomspace(parameter.low, parameter.high, 3)
            axis.update(tickvals=ticks, ticktext=[f"{tick:.3g}" for tick in ticks])
        _scale_values(figure, [*trials.values()])
        figure.update_layout(width=None)
        figures.append(_laid_out(figure, 340))
    text = (
        "Each mark is a trial that has the parameter: its value of the parameter and of "
        f"{data.objective.metric}, the last one where it was stopped early."
    )
    return Plot(text + _on_constraints(data), figures, wide=True)


def plot_parallel_coordinates(data: ReportData) -> Plot:
    """Plot each trial as a line through its parameters."""
    chosen, part = _spread([trial for trial in data.ranking if trial.value is not None])
    study = study_of(data, [data.objective], _only(chosen, TrialState.COMPLETE))
    metric, is_max = data.objective.metric, data.objective.mode == "max"
    figure = visualization.plot_parallel_coordinate(study, data.searched, target_name=metric)
    scale = [_GREY, _BLUE] if is_max else [_BLUE, _GREY]
    for line in figure.select_traces({"mode": "lines", "showlegend": False}):
        (colour,) = sample_colorscale(scale, line.y[0])  # the first axis is the metric
        line.update(line_color=colour, opacity=0.7)
    figure.update_traces(
        marker={"colorscale": scale, "reversescale": False}, selector={"mode": "markers"}
    )
    # The best lines come last, on top; lines of the key and of the scale have no value.
    figure.data = sorted(figure.data, key=lambda line: (line.y[0] or 0) * (1 if is_max else -1))
    figure.update_annotations(font={"color": None, "size": 11})
    text = "Each line is a trial: the bluer, the better. A trial without a parameter has None."
    return Plot(text + part, [_laid_out(figure, 480)], by_state=False, wide=True)


def plot_ends(data: ReportData) -> Plot:
    """Plot how many trials ended after how many epochs, as at the rungs of a scheduler."""
    figure = go.Figure()
    for trials in data.by_state.values():
        style, epochs = trials[0].style, [str(trial.result.iterations) for trial in trials]
        figure.add_histogram(x=epochs, name=style.word, marker_color=style.colour)
    epochs = [str(epoch) for epoch in sorted({it.result.iterations for it in data.trials})]
    figure.update_xaxes(type="category", categoryorder="array", categoryarray=epochs)
    figure.update_layout(barmode="stack", xaxis_title="epochs", yaxis_title="trials")
    return Plot("After how many epochs the trials ended, or stand now.", [_laid_out(figure, 360)])


def plot_timeline(data: ReportData) -> Plot:
    """Plot when each trial ran."""
    if not any(trial.view.began_s and trial.end_s for trial in data.trials):
        return Plot("no trial's start and end are known")
    figure = visualization.plot_timeline(study_of(data, [data.objective], _timed_state))
    trials = {trial.number: trial for trial in data.trials}
    figure.data = [bars for bars in figure.data if bars.name != TrialState.WAITING.name]
    for bars in figure.data:
        those = [trials[number] for number in bars.y]
        bars.marker.update(color=[trial.style.colour for trial in those], line_width=0)
        bars.text = [f"trial {trial.number}, {trial.style.word}" for trial in those]
        bars.hovertemplate = "%{text}<extra></extra>"
    figure.update_layout(xaxis_title="local time", yaxis_title="trial", bargap=0.15)
    figure.update_yaxes(autorange="reversed")
    text = "From the start of each trial to its end or last result, pauses included."
    return Plot(text, [_laid_out(figure, min(900, 140 + 14 * len(trials)))])


PLOTS: Final[dict[str, Callable[[ReportData], Plot]]] = {
    "History": plot_history,
    "Learning curves": plot_learning_curves,
    "Pareto front": plot_pareto_fronts,
    "Importances": plot_importances,
    "Slices": plot_slices,
    "Parallel coordinates": plot_parallel_coordinates,
    "Epochs of the trials": plot_ends,
    "Timeline": plot_timeline,
}
"""Functions that plot, by the title on the page, in its order."""


_OF_VALUES = ("History", "Importances", "Slices", "Parallel coordinates")
_OF_PARAMETERS = ("Importances", "Slices", "Parallel coordinates")


def draw_plots(data: ReportData) -> dict[str, Plot]:
    """Draw all plots, by title; a fault in one costs no other."""
    plots: dict[str, Plot] = {}
    for title, draw in PLOTS.items() if data.trials else ():
        if title in _OF_VALUES and not _with_value(data):
            plots[title] = Plot(f"no trial reported a finite {data.objective.metric}")
        elif title in _OF_PARAMETERS and not data.searched:
            plots[title] = Plot("nothing is searched but constants")
        elif draw is not plot_pareto_fronts or len(data.result.config.objectives) > 1:
            try:
                with _optuna_silenced():
                    plots[title] = draw(data)
            except Exception as error:  # noqa: BLE001 - the other plots must still be drawn
                _LOG.exception("%s of %s could not be drawn", title, data.result.sweep_id)
                plots[title] = Plot(f"it could not be drawn: {error!r}")
    return plots


def _values_of(pair: Sequence[int], trial: FrozenTrial) -> list[float]:
    return [trial.values[at] for at in pair]


def _timed_state(trial: ReportTrial) -> TrialState:
    if not (trial.view.began_s and trial.end_s):
        return TrialState.WAITING
    state = recorded_state(trial)
    is_over = state is TrialState.RUNNING and trial.state != "running"
    return TrialState.PRUNED if is_over else state


def _only(chosen: Sequence[ReportTrial], state: TrialState) -> Callable[[ReportTrial], TrialState]:
    """Return a function that gives the chosen trials a state; others are waiting."""
    numbers = {trial.number for trial in chosen}
    return lambda trial: state if trial.number in numbers else TrialState.WAITING


def _with_value(data: ReportData) -> list[ReportTrial]:
    return [trial for trial in data.trials if trial.value is not None]


def _on_constraints(data: ReportData) -> str:
    violated = any(not trial.result.feasible for trial in data.trials)
    return " Trials in light grey violate the constraints." if violated else ""


def _spread(ranked: Sequence[ReportTrial]) -> tuple[list[ReportTrial], str]:
    """Return trials to draw as lines, from the best to the worst, and a sentence if not all."""
    if len(ranked) <= _MAX_LINES:
        return [*ranked], ""
    places = np.linspace(0, len(ranked) - 1, _MAX_LINES).round().astype(int)
    text = f" {_MAX_LINES} of {len(ranked):,} trials, evenly from the best to the worst."
    return [ranked[place] for place in places], text


def _scale_values(figure: go.Figure, trials: Sequence[ReportTrial]) -> None:
    """Make the axis of values logarithmic if positive ones span orders of magnitude."""
    values = [value for trial in trials for value in trial.curve.values()]
    if values and min(values) > 0 and max(values) / min(values) > _MIN_LOG_RATIO:
        figure.update_yaxes(type="log", dtick=1)


def _laid_out(figure: go.Figure, height: int) -> go.Figure:
    """Leave title, key, width and colours of the background to the page."""
    return figure.update_layout(title=None, showlegend=False, height=height, template="none")
