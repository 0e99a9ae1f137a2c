"""Settings that all trials of a sweep share."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tune_tf.resources import TrialResources
from tune_tf.tracking.trial_tracking import TrialTracking
from tune_tf.trainables.memory.recycling import Recycling
from tune_tf.validation import Validation

LoopKind = Literal["graph", "fit"]


@dataclass(frozen=True)
class TrialSettings:
    """How the trials of a sweep train, as :func:`tune_tf.trainable` passes it to its classes.

    Args:
        parallelism: How a trial uses its devices.
        resources: What a trial may use where Tune has reserved nothing, as when driven by hand.
        loop: ``"graph"`` for epochs as one graph call, ``"fit"`` for ``keras.Model.fit``.
        validation: When validation rows are evaluated.
        seed: The sweep's seed; None draws one from the trial's id.
        checkpoint_interval_s: Seconds of training after which an iteration asks Tune for a
            checkpoint; None leaves it to Tune's ``CheckpointConfig``.
        recycling: When a process has traced too much to serve another trial.
        tracking: Where the trials' MLflow runs are, for :func:`tune_tf.mlflow_run`; None without.
        elastic: Whether to train with more replicas where Tune has reserved more than
            ``resources``.
        data_id: Names the workload's data, for the trials of a node to share them; None if each
            process loads them.
        log_folder: The sweep's folder, for the logs of its trials; None for no log.
    """

    parallelism: Any
    resources: TrialResources
    loop: LoopKind = "graph"
    validation: Validation = field(default_factory=Validation)
    seed: int | None = None
    checkpoint_interval_s: float | None = None
    recycling: Recycling = field(default_factory=Recycling)
    tracking: TrialTracking | None = None
    elastic: bool = False
    data_id: str | None = None
    log_folder: Path | None = None
