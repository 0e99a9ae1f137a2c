"""User attributes of Optuna trials that link and explain them."""

from collections.abc import Mapping
from typing import Any, Final

from tune_tf.outcome import CONFIG_CHANGED_AT, MLFLOW_RUN_ID, is_finite
from tune_tf.result_keys import TRAINING_ITERATION

TUNE_TRIAL_ID: Final = "tune_trial_id"
"""User attribute that holds Tune's id of the trial."""

WARM_START: Final = "warm_start"
"""User attribute of a trial that was run elsewhere: where it comes from."""

WARM_START_KEY: Final = "warm_start_key"
"""User attribute of a trial that was run elsewhere: what its source knows it by."""

POINT: Final = "point_to_evaluate"
"""User attribute of a trial: the index of the point that it was made for."""

SECONDS: Final = "seconds"
"""User attribute: how long the trial trained, in seconds."""

EPOCHS: Final = "epochs"
"""User attribute: how many iterations the trial ran."""

_SECONDS_OF_TUNE = "time_total_s"


def attrs_from_result(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the user attributes of a trial with this last result."""
    attrs: dict[str, Any] = {}
    if isinstance(run_id := result.get(MLFLOW_RUN_ID), str):
        attrs[MLFLOW_RUN_ID] = run_id
    if is_finite(seconds := result.get(_SECONDS_OF_TUNE)):
        attrs[SECONDS] = float(seconds)  # type: ignore[arg-type]
    if TRAINING_ITERATION in result:
        attrs[EPOCHS] = int(result[TRAINING_ITERATION])
    if (changed_at := config_changed_at(result)) is not None:
        attrs[CONFIG_CHANGED_AT] = changed_at
    return attrs


def config_changed_at(result: Mapping[str, Any]) -> int | None:
    """Return the last iteration that ran with the trial's own config; None if all did.

    What comes after it is due to another config, as after an exploit of population based training.
    """
    at = result.get(CONFIG_CHANGED_AT)
    return int(at) if is_finite(at) else None  # type: ignore[arg-type]
