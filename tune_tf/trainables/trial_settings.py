"""Settings shared by all trials of a sweep."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tune_tf.resources import TrialResources
from tune_tf.tracking.trial_run import TrialTracking
from tune_tf.trainables.memory.recycling import Recycling
from tune_tf.validation import Validation

LoopKind = Literal["graph", "fit"]


@dataclass(frozen=True)
class TrialSettings:
    """Settings shared by all trials of a sweep, passed by :func:`tune_tf.trainable`.

    Args:
        parallelism: Layout of a trial over devices.
        resources: Resources to use where Tune has reserved none.
        loop: ``"graph"`` runs an epoch as one graph call, ``"fit"`` calls ``keras.Model.fit``.
        validation: When validation rows are evaluated.
        seed: Seed of the sweep; None derives one from the trial's id.
        checkpoint_interval_s: Seconds of training after which a result requests a checkpoint; None
            leaves it to Tune's ``CheckpointConfig``.
        recycling: Limits after which a process serves no other trial.
        tracking: MLflow settings of the trials, for :func:`tune_tf.mlflow_run`; None without runs.
        elastic: Whether to train with more replicas where Tune has reserved more than
            ``resources``.
        data_id: Key under which the processes of a node share the workload's data; None to load it
            separately.
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
