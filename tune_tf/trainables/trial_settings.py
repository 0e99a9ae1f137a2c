"""Settings shared by all trials of a sweep, and the seed of each trial."""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tune_tf.ranking import KeepBest
from tune_tf.resources import TrialResources
from tune_tf.tracking.trial_run import TrialTracking
from tune_tf.training.seeds import derive_seed

LoopKind = Literal["graph", "fit"]

_TRIAL_NUMBER = re.compile(r"_(\d{5,7})$")  # eight digits are a searcher's id, not a number


@dataclass(frozen=True)
class TrialSettings:
    """Settings shared by all trials of a sweep: the arguments of :func:`tune_tf.trainable`.

    Args:
        resources: Resources to use where Tune has reserved none.
        data_id: Key under which the processes of a node share the workload's data; None to load it
            separately.
        share_frozen: Whether trials share the outputs of frozen layers.
        reproducible: Whether results are the same bit for bit when a trial is repeated.
    """

    parallelism: Any
    resources: TrialResources
    loop: LoopKind = "graph"
    seed: int | None = None
    checkpoint_interval_s: float | None = None
    tracking: TrialTracking | None = None
    elastic: bool = False
    data_id: str | None = None
    log_folder: Path | None = None
    epochs: int | None = None
    keep: KeepBest | None = None
    share_frozen: bool = True
    reproducible: bool = False


def seed_of_trial(sweep_seed: int | None, trial_id: str, trial_name: str) -> int:
    """Return a trial's seed, from the sweep's seed and the number at the end of its name or id.

    Tune's ids and the names given by :func:`tune_tf.run_sweep` end in a number. Without a number,
    all trials of a sweep get the same seed. Without a sweep seed, it is a hash of the trial's id.
    """
    if sweep_seed is None:
        return int.from_bytes(hashlib.sha256(trial_id.encode()).digest()[:4], "big")
    match = _TRIAL_NUMBER.search(trial_name) or _TRIAL_NUMBER.search(trial_id)
    return derive_seed(sweep_seed, int(match[1]) if match else 0)
