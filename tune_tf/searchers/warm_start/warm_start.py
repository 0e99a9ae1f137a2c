"""Results of an earlier sweep, put into a study as trials that were evaluated already."""

import logging
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import optuna

from tune_tf.errors import InvalidSettingsError
from tune_tf.searchers.objectives import SearchObjectives
from tune_tf.searchers.space_adapter import GivenSpace
from tune_tf.searchers.trial_attrs import WARM_START
from tune_tf.searchers.warm_start.earlier_trials import MLflowSource, Source, StudySource
from tune_tf.searchers.warm_start.evaluated_trial import OutsideSpaceError, trial_of

_log = logging.getLogger(__name__)

WARM_START_KEY: Final = "warm_start_key"
"""User attribute of an Optuna trial that was run elsewhere: what its source knows it by."""

_MLFLOW = "mlflow:"


@dataclass(frozen=True)
class WarmStart:
    """Where earlier results come from.

    Args:
        source: A sweep's folder; a study's journal file or database URL, with ``#name`` at the end
            where it holds several studies; or ``mlflow:<experiment name>``.
        tracking_uri: Where MLflow keeps the experiment; None for what MLflow's environment says.

    Raises:
        InvalidSettingsError: The source is none of these; or a tracking URI is given for no
            experiment.
    """

    source: str | os.PathLike[str]
    tracking_uri: str | None = None

    def __post_init__(self) -> None:
        """Refuse bad values when made."""
        faults = []
        if not isinstance(self.source, str | os.PathLike) or not str(self.source):
            faults.append(f"warm_start_from must be a path or a text, not {self.source!r}")
        elif str(self.source) == _MLFLOW:
            faults.append("warm_start_from 'mlflow:' names no experiment: write mlflow:<name>")
        if faults:
            raise InvalidSettingsError(faults)
        object.__setattr__(self, "source", os.fspath(self.source))

    @property
    def opened(self) -> Source:
        """What reads it."""
        text = str(self.source)
        if text.startswith(_MLFLOW):
            return MLflowSource(text.removeprefix(_MLFLOW), self.tracking_uri)
        return StudySource(text)


@dataclass(frozen=True)
class ImportSummary:
    """What a warm start took over.

    Args:
        source: Where from.
        num_taken: Trials that are in the study now.
        left_out: How many trials were not taken, by the reason.
    """

    source: str
    num_taken: int
    left_out: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return ``12 trials taken over from PATH; 3 left out: 3 lack a value for rate``."""
        text = f"{self.num_taken} earlier trials taken over from {self.source}"
        if not self.left_out:
            return text
        reasons = ", ".join(f"{count} because {why}" for why, count in self.left_out.items())
        return f"{text}; {sum(self.left_out.values())} left out: {reasons}"


def import_trials(
    study: optuna.Study,
    space: GivenSpace,
    goals: SearchObjectives,
    start: WarmStart,
    *,
    dense: bool = False,
) -> ImportSummary:
    """Add the earlier trials that a space holds to a study, once; tell it in the log.

    Args:
        study: The study.
        space: Its search space.
        goals: Its objectives and constraints.
        start: Where the trials are.
        dense: Whether the sampler is to be shown inactive parameters too; they are drawn.

    Raises:
        InvalidSettingsError: The source cannot be read, or has other objectives.
    """
    source = str(start.source)
    done = study.user_attrs.get(WARM_START, {}).get(source)
    if done is not None:
        return ImportSummary(source, done["num_taken"], done["left_out"])
    had = {
        trial.user_attrs.get(WARM_START_KEY)
        for trial in study.get_trials(deepcopy=False)
        if trial.user_attrs.get(WARM_START) == source
    }
    num_taken, left_out = len(had), Counter[str]()
    for earlier in start.opened.read(goals):
        if earlier.key in had:
            continue
        try:
            attributes = {WARM_START: source, WARM_START_KEY: earlier.key}
            seed = num_taken if dense else None
            study.add_trial(trial_of(earlier, space, goals, attributes, dense_seed=seed))
            num_taken += 1
        except OutsideSpaceError as error:
            left_out[str(error)] += 1
    taken = ImportSummary(source, num_taken, dict(left_out))
    record = {"num_taken": num_taken, "left_out": dict(left_out)}
    study.set_user_attr(WARM_START, {**study.user_attrs.get(WARM_START, {}), source: record})
    _log.info("%s", taken) if num_taken else _log.warning("%s", taken)
    return taken
