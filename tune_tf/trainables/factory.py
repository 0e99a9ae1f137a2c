"""Factory of the Tune trainable class for a workload and a parallelism."""

import functools
import pkgutil
import uuid
from pathlib import Path
from typing import Any

from ray import tune

from tune_tf.errors import InvalidSettingsError, one_of
from tune_tf.parallelism import Mirrored, Parallelism
from tune_tf.ranking import KeepBest
from tune_tf.resources import TrialResources
from tune_tf.tracking.trial_run import TrialTracking
from tune_tf.trainables.capacity import check_cluster, default_resources
from tune_tf.trainables.trial_process import PickledWorkload
from tune_tf.trainables.trial_settings import LoopKind, TrialSettings
from tune_tf.workload import Workload

_LOOPS = ("graph", "fit")


def trainable(
    workload: Workload | type[Workload],
    parallelism: Parallelism = Mirrored(),  # noqa: B008  frozen
    *,
    resources: TrialResources | None = None,
    loop: LoopKind = "graph",
    seed: int | None = None,
    checkpoint_interval_s: float | None = None,
    tracking: TrialTracking | None = None,
    elastic: bool = False,
    log_folder: Path | None = None,
    epochs: int | None = None,
    keep: KeepBest | None = None,
    share_frozen: bool = True,
    reproducible: bool = False,
) -> type[tune.Trainable]:
    """Return a Ray Tune trainable class for a workload.

    It works with ``tune.run`` and ``tune.Tuner`` and carries its own resource request. Trials of
    one process also run without a Ray cluster: ``t = trainable(MyWorkload)(config={...});
    t.train()``.

    Args:
        workload: Data and model: an instance, or a class whose constructor takes no arguments.
        parallelism: Layout of a trial over devices.
        resources: Resources reserved for a trial; by default one GPU per replica if the cluster has
            GPUs, else one CPU per replica.
        loop: ``"graph"`` runs an epoch as one graph call. ``"fit"`` calls ``keras.Model.fit``,
            which is slower but supports batch callbacks and ``run_eagerly``; on one device.
        seed: Seed of the sweep; with the trial's number it determines weights, dropout and data
            order of a trial. None: a different seed for each trial.
        checkpoint_interval_s: Seconds of training between two checkpoints of a running trial; None
            leaves checkpoints to Tune's ``CheckpointConfig``.
        tracking: MLflow settings of the trials, for :func:`tune_tf.mlflow_run` and system metrics;
            not needed where an :class:`tune_tf.MLflowCallback` alone is enough.
        elastic: Whether a running trial that gets more devices, as from Ray's
            ``ResourceChangingScheduler``, continues with more replicas. Trials of several workers
            always do.
        log_folder: The sweep's folder, reachable from every node. Stdout and stderr of a trial's
            processes go to ``log.txt`` in its folder there, and files of Keras' callbacks with
            relative paths to ``files``. None leaves them to Ray.
        epochs: Maximum epochs of a trial, for the ``params`` of callbacks; it ends no trial.
        keep: By which objective a trial keeps its best epoch in its checkpoints, and reports that
            one's metrics as ``kept/...`` with each result. None for the last epoch.
        share_frozen: Whether the trials of a node compute the outputs of frozen layers at the
            beginning of their models once, where that saves much, and train only the rest.
        reproducible: Whether GPUs use deterministic kernels, as a sweep with ``reproducible: true``
            needs. An operation that has no
            deterministic kernel raises an error that names it.

    Raises:
        InvalidSettingsError: The arguments are incompatible.
    """
    if isinstance(workload, type):
        workload = workload()
    if not isinstance(workload, Workload):
        raise InvalidSettingsError(
            [f"workload must be a tune_tf.Workload, not {type(workload).__name__}"]
        )
    settings = TrialSettings(
        parallelism,
        resources or default_resources(parallelism),
        loop,
        seed,
        checkpoint_interval_s,
        tracking,
        elastic,
        uuid.uuid4().hex,
        log_folder,
        epochs,
        keep,
        share_frozen,
        reproducible,
    )
    if conflict := _conflict(workload, settings):
        raise InvalidSettingsError([conflict])
    if resources is not None:
        parallelism.check(resources)
    trainable_class = tune.with_parameters(
        pkgutil.resolve_name(parallelism.trainable),
        workload=PickledWorkload.of(workload),
        settings=settings,
    )
    request = functools.partial(_placement_group, parallelism, resources)
    return tune.with_resources(trainable_class, request)


def _conflict(workload: Workload, settings: TrialSettings) -> str:
    """Return the error of settings that do not work together; empty without one."""
    loop, parallelism = settings.loop, settings.parallelism
    per_example = f"{type(workload).__name__}.per_example, which runs inside the graph of an epoch"
    if loop not in _LOOPS:
        return f"loop must be {one_of(_LOOPS)}, not {loop!r}"
    if loop == "fit":
        is_mirrored, parts = isinstance(parallelism, Mirrored), parallelism.micro_batches
        if not is_mirrored or parallelism.num_replicas > 1 or parts > 1:
            return (
                "loop=\"fit\" trains on one device in whole batches: use kind 'mirrored' with "
                f"num_replicas 1 and micro_batches 1, not kind {parallelism.kind!r} with "
                f'{parallelism.label} and micro_batches {parts}, or loop="graph"'
            )
        if workload.computes_rows:
            return (
                f'loop="fit" does not support {per_example}: use loop="graph", or map the rows in '
                "load_data"
            )
    if workload.computes_rows and not parallelism.supports_row_functions:
        return (
            f"kind {parallelism.kind!r} does not support {per_example}: use another kind, or map "
            "the rows in load_data"
        )
    return ""


def _placement_group(
    parallelism: Parallelism, resources: TrialResources | None, config: Any
) -> tune.PlacementGroupFactory:
    resources = resources or default_resources(parallelism)
    check_cluster(resources, parallelism)
    bundles = [share.bundle for share in parallelism.shares(resources)]
    if parallelism.in_processes:
        bundles = [{}, *bundles]  # the trial's own actor runs next to its first worker
    return tune.PlacementGroupFactory(bundles, strategy=parallelism.placement.upper())
