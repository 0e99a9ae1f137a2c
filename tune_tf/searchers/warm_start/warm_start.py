"""Warm start: import of an earlier sweep's results into a study."""

import logging
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import optuna

from tune_tf.errors import InvalidSettingsError
from tune_tf.searchers.criteria import SearchCriteria
from tune_tf.searchers.space_adapter import GivenSpace
from tune_tf.searchers.trial_attrs import WARM_START
from tune_tf.searchers.warm_start.earlier_trials import MLflowSource, StudySource, TrialSource
from tune_tf.searchers.warm_start.evaluated_trial import OutsideSpaceError, to_optuna_trial

_log = logging.getLogger(__name__)

WARM_START_KEY: Final = "warm_start_key"
"""User attribute of an Optuna trial that was run elsewhere: what its source knows it by."""

_MLFLOW = "mlflow:"


@dataclass(frozen=True)
class WarmStart:
    """Source of earlier results for a warm start.

    Args:
        source: A sweep's folder; a study's journal file or database URL, with ``#name`` at the end
            if it contains several studies; or ``mlflow:<experiment name>``.
        tracking_uri: MLflow's tracking URI; None for that of MLflow's environment.

    Raises:
        InvalidSettingsError: The source is none of these, or a tracking URI is given without an
            experiment.
    """

    source: str | os.PathLike[str]
    tracking_uri: str | None = None

    def __post_init__(self) -> None:
        """Validate the source."""
        errors = []
        if not isinstance(self.source, str | os.PathLike) or not str(self.source):
            errors.append(f"warm_start_from must be a path or string, not {self.source!r}")
        elif str(self.source) == _MLFLOW:
            errors.append("warm_start_from 'mlflow:' names no experiment: use mlflow:<name>")
        if errors:
            raise InvalidSettingsError(errors)
        object.__setattr__(self, "source", os.fspath(self.source))

    @property
    def reader(self) -> TrialSource:
        """The reader of the source."""
        text = str(self.source)
        if text.startswith(_MLFLOW):
            return MLflowSource(text.removeprefix(_MLFLOW), self.tracking_uri)
        return StudySource(text)


@dataclass(frozen=True)
class ImportSummary:
    """Summary of a warm start.

    Args:
        source: The source.
        num_imported: Number of trials in the study now.
        skipped: Number of skipped trials, by reason.
    """

    source: str
    num_imported: int
    skipped: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return ``12 earlier trials imported from PATH; 3 skipped: 3 because ...``."""
        text = f"{self.num_imported} earlier trials imported from {self.source}"
        if not self.skipped:
            return text
        reasons = ", ".join(f"{count} because {why}" for why, count in self.skipped.items())
        return f"{text}; {sum(self.skipped.values())} skipped: {reasons}"


def import_trials(
    study: optuna.Study,
    space: GivenSpace,
    criteria: SearchCriteria,
    start: WarmStart,
    *,
    dense: bool = False,
) -> ImportSummary:
    """Add the earlier trials that a space contains to a study, once; log a summary.

    Args:
        study: The study.
        space: Its search space.
        criteria: Its objectives and constraints.
        start: Source of the trials.
        dense: Whether the sampler needs values of inactive parameters; they are sampled.

    Raises:
        InvalidSettingsError: The source cannot be read, or has other objectives.
    """
    source = str(start.source)
    done = study.user_attrs.get(WARM_START, {}).get(source)
    if done is not None:
        return ImportSummary(source, done["num_imported"], done["skipped"])
    had = {
        trial.user_attrs.get(WARM_START_KEY)
        for trial in study.get_trials(deepcopy=False)
        if trial.user_attrs.get(WARM_START) == source
    }
    num_imported, skipped = len(had), Counter[str]()
    for earlier in start.reader.read(criteria):
        if earlier.key in had:
            continue
        try:
            attributes = {WARM_START: source, WARM_START_KEY: earlier.key}
            seed = num_imported if dense else None
            study.add_trial(to_optuna_trial(earlier, space, criteria, attributes, dense_seed=seed))
            num_imported += 1
        except OutsideSpaceError as error:
            skipped[str(error)] += 1
    summary = ImportSummary(source, num_imported, dict(skipped))
    record = {"num_imported": num_imported, "skipped": dict(skipped)}
    study.set_user_attr(WARM_START, {**study.user_attrs.get(WARM_START, {}), source: record})
    _log.info("%s", summary) if num_imported else _log.warning("%s", summary)
    return summary
