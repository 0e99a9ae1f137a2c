"""Plot of the parameter importances."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import optuna
from optuna.distributions import FloatDistribution

from tune_tf.formatting import counted
from tune_tf.outcome import Outcome
from tune_tf.report.plots.axis import Axis, options_axis
from tune_tf.report.plots.chart import Bars, Chart, Panel
from tune_tf.report.plots.outcome_style import STYLES
from tune_tf.report.plots.plot import NothingToDrawError, Plot
from tune_tf.report.report_data import ReportData
from tune_tf.space import Constant
from tune_tf.space.optuna_form import stored_value

_MIN_TRIALS = 4
_FEW_PER_PARAMETER = 4
"""Trials for each parameter; with half as many, the order of two parameters with 80 % and 20 % of
the variance, among four, comes out wrong about every second time."""
_MAX_TRIALS = 200  # with six parameters, 500 take 14 s and 2,000 take 80 s

_TREES = 64
_COLOUR = STYLES[Outcome.COMPLETED].colour


@dataclass(frozen=True)
class ImportanceShares:
    """Result of an analysis of variance."""

    shares: dict[str, float]  # of the variance by parameter, largest first
    num_trials: int  # analysed
    num_suitable: int
    conditional: tuple[str, ...]  # parameters missing from some trials: not comparable


def plot_importances(record: ReportData) -> Plot:
    """Plot the share of the variance that each parameter explains by itself.

    Source: Hutter et al., ICML 2014; https://proceedings.mlr.press/v32/hutter14.html
    """
    importances = importance_shares(record)
    upwards = list(reversed(importances.shares.items()))  # the first axis tick is at the bottom
    shares = [share for _, share in upwards]
    bars = Bars(
        name="",
        colour=_COLOUR,
        places=range(len(shares)),
        starts=[0.0] * len(shares),
        lengths=shares,
        horizontal=True,
    )
    panel = Panel(
        Axis("share of the variance", high=1.12 * max(1e-9, *shares), fixed=True, percent=True),
        options_axis("", [name for name, _ in upwards]),
        [bars],
        notes=[(share, row, f"{share:.0%}") for row, share in enumerate(shares)],
        note_side="right",
    )
    caption = _caption(record.objective.metric, importances)
    return Plot(caption, Chart([panel], record.crowded), height=420)


def _caption(metric: str, importances: ImportanceShares) -> str:
    text = (
        f"How much of the variance of {metric} each parameter explains by itself (functional ANOVA "
        f"over {counted(importances.num_trials, 'completed trial')}"
    )
    if importances.num_suitable > importances.num_trials:
        text += f", taken evenly from {importances.num_suitable:,}"
    text += "); with few trials, take it as a hint."
    if importances.num_trials < (enough := _FEW_PER_PARAMETER * len(importances.shares)):
        text += (
            f" With fewer than {enough} trials for {counted(len(importances.shares), 'parameter')} "
            "even their order is mostly noise."
        )
    if importances.conditional:
        text += (
            " Not compared, because not every completed trial has them: "
            f"{', '.join(importances.conditional)}."
        )
    return text


def importance_shares(record: ReportData) -> ImportanceShares:
    """Return the share of the leading objective's variance that each parameter explains.

    Only completed trials count: the value of a stopped trial belongs to another iteration.

    Raises:
        NothingToDrawError: The trials cannot be compared.
    """
    suitable = np.flatnonzero(record.completed & ~np.isnan(record.values))
    if len(suitable) < _MIN_TRIALS:
        raise NothingToDrawError(
            f"only {counted(len(suitable), 'trial')} completed with a finite value; {_MIN_TRIALS} "
            "are needed to compare"
        )
    if len(np.unique(record.values[suitable])) == 1:
        raise NothingToDrawError("all completed trials have the same value")
    count = min(_MAX_TRIALS, len(suitable))
    places = np.unique(np.linspace(0, len(suitable) - 1, count).astype(int))
    sample = suitable[places].tolist()
    space = record.result.config.space
    searched = [path for path, it in space.parameters.items() if not isinstance(it, Constant)]
    comparable = [path for path in searched if all(path in record.configs[i] for i in sample)]
    if not comparable:
        raise NothingToDrawError("no parameter is part of every completed trial")
    try:
        study = _study(record, sample, comparable)
        evaluator = optuna.importance.FanovaImportanceEvaluator(n_trees=_TREES, seed=0)
        shares = optuna.importance.get_param_importances(study, evaluator=evaluator)
    except (ValueError, RuntimeError) as error:  # from Optuna, for trials it cannot compare
        raise NothingToDrawError(f"Optuna could not compare the trials: {error}") from error
    return ImportanceShares(
        {path: float(share) for path, share in shares.items()},
        num_trials=len(sample),
        num_suitable=len(suitable),
        conditional=tuple(path for path in searched if path not in comparable),
    )


def _study(record: ReportData, sample: list[int], paths: list[str]) -> optuna.Study:
    """Return an in-memory study of a sample of trials."""
    space = record.result.config.space
    distributions = {path: space.distributions()[path] for path in paths}
    columns: dict[str, list[Any]] = {}
    for path, distribution in distributions.items():
        parameter = space.parameters[path]
        values = [stored_value(record.configs[index][path], parameter) for index in sample]
        columns[path] = values
        if isinstance(distribution, FloatDistribution) and distribution.step is None:
            # PBT may perturb values out of the range.
            low, high = min(distribution.low, *values), max(distribution.high, *values)
            distributions[path] = FloatDistribution(low, high, log=distribution.log)
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # create_study logs each study
    try:
        is_max = record.objective.mode == "max"
        study = optuna.create_study(direction="maximize" if is_max else "minimize")
    finally:
        optuna.logging.set_verbosity(verbosity)
    for row, index in enumerate(sample):
        params = {path: column[row] for path, column in columns.items()}
        value = float(record.values[index])
        study.add_trial(
            optuna.create_trial(params=params, distributions=distributions, value=value)
        )
    return study
