"""Trainable class for a workload and a parallelism."""

import functools
import uuid
from pathlib import Path
from typing import Any

import ray
from ray import tune

from tune_tf.errors import InvalidSettingsError, UnavailableResourcesError, one_of
from tune_tf.parallelism import Asynchronous, Ensemble, Folds, Mirrored, MultiWorker, Parallelism
from tune_tf.resources import TrialResources
from tune_tf.tracking.trial_tracking import TrialTracking
from tune_tf.trainables.asynchronous import AsynchronousTrainable
from tune_tf.trainables.capacity import largest_node, num_trials, room_by_node
from tune_tf.trainables.folds import FoldsTrainable
from tune_tf.trainables.memory.recycling import Recycling
from tune_tf.trainables.mirrored import LoopKind, MirroredTrainable
from tune_tf.trainables.model_parallel import ModelParallelTrainable
from tune_tf.trainables.multi_process.worker import PickledWorkload
from tune_tf.trainables.multi_worker import MultiWorkerTrainable
from tune_tf.validation import Validation
from tune_tf.workload import Workload

_LOOPS = ("graph", "fit")
_IN_PROCESSES: dict[type[Parallelism], type[tune.Trainable]] = {
    MultiWorker: MultiWorkerTrainable,
    Asynchronous: AsynchronousTrainable,
    Folds: FoldsTrainable,
    Ensemble: FoldsTrainable,
}
"""Trainables of the kinds whose trials train in processes of their own, one a bundle."""


def trainable(
    workload: Workload | type[Workload],
    parallelism: Parallelism = Mirrored(),  # noqa: B008  frozen
    *,
    resources: TrialResources | None = None,
    loop: LoopKind = "graph",
    validation: Validation = Validation(),  # noqa: B008  frozen
    seed: int | None = None,
    checkpoint_interval_s: float | None = None,
    recycling: Recycling | None = None,
    tracking: TrialTracking | None = None,
    elastic: bool = False,
    log_folder: Path | None = None,
) -> type[tune.Trainable]:
    """Return a Trainable that trains a workload, ready for ``tune.run`` and ``tune.Tuner``.

    It reserves what it needs by itself, and can be driven by hand without a Ray cluster:
    ``t = trainable(MyWorkload)(config={...}); t.train()``.

    Args:
        workload: Data and model, an instance or a class without arguments.
        parallelism: How a trial is spread over devices.
        resources: What Ray reserves for a trial; by default a GPU a replica where the cluster has
            GPUs, else a CPU a replica.
        loop: ``"graph"``: an epoch is one graph call. ``"fit"``: ``keras.Model.fit``, slower, for
            what only ``fit`` does (callbacks for batches, tf.data pipelines).
        validation: When validation rows are evaluated.
        seed: Of the sweep; weights, dropout and data order of a trial follow from it and the
            trial's number. None: a seed of its own for each trial.
        checkpoint_interval_s: Seconds of training between two checkpoints of a running trial;
            None leaves checkpoints to Tune's ``CheckpointConfig``.
        recycling: When a reused process has traced too much.
        tracking: Where the trials' MLflow runs are, for :func:`tune_tf.mlflow_run` and system
            metrics; None where an :class:`tune_tf.MLflowCallback` alone is enough.
        elastic: Whether a trial that is given more devices while it runs, as the scheduler
            ``resource_changing`` does it, goes on with more replicas; those of several workers
            always do.
        log_folder: The sweep's folder, reachable from every node: what the processes of a trial
            write to stdout and stderr goes to ``log.txt`` in its folder there. None to leave it to
            Ray.

    Raises:
        InvalidSettingsError: The arguments do not fit each other.
    """
    if isinstance(workload, type):
        workload = _made(workload)
    if not isinstance(workload, Workload):
        raise InvalidSettingsError(
            [f"workload must be a tune_tf.Workload, not {type(workload).__name__}"]
        )
    if loop not in _LOOPS:
        raise InvalidSettingsError([f"loop must be {one_of(_LOOPS)}, not {loop!r}"])
    if loop == "fit":
        _check_fit(workload, parallelism)
    if isinstance(parallelism, Asynchronous) and workload.computes_rows:
        raise InvalidSettingsError(
            [
                f"kind {parallelism.kind!r} has no place for "
                f"{type(workload).__name__}.per_example, "
                "which runs inside the graph of an epoch: use another kind, or map the rows in "
                "load_data"
            ]
        )
    if validation.asynchronous and (loop == "fit" or type(parallelism) in _IN_PROCESSES):
        what = 'loop="fit"' if loop == "fit" else f"kind {parallelism.kind!r}"
        raise InvalidSettingsError(
            [
                f"validation.asynchronous does not go with {what}: it is for trials that train by "
                "graph calls in one process; leave it out"
            ]
        )
    if resources is not None:
        parallelism.check(resources)
    given = {
        "parallelism": parallelism,
        "resources": resources or default_resources(parallelism),
        "seed": seed,
        "checkpoint_interval_s": checkpoint_interval_s,
        "recycling": recycling,
        "tracking": tracking,
        "data_id": uuid.uuid4().hex,
        "log_folder": log_folder,
    }
    if in_processes := _IN_PROCESSES.get(type(parallelism)):
        prepared = tune.with_parameters(
            in_processes, workload=PickledWorkload.of(workload), **given
        )
    else:
        mirrored = isinstance(parallelism, Mirrored)
        prepared = tune.with_parameters(
            MirroredTrainable if mirrored else ModelParallelTrainable,
            workload=workload,
            loop=loop,
            validation=validation,
            elastic=elastic and mirrored,
            **given,
        )
    request = functools.partial(_placement_group, parallelism, resources)
    return tune.with_resources(prepared, request)


def _check_fit(workload: Workload, parallelism: Parallelism) -> None:
    """Refuse what ``keras.Model.fit`` cannot do.

    Raises:
        InvalidSettingsError: Tells what.
    """
    error = None
    if not isinstance(parallelism, Mirrored | MultiWorker):
        error = f"trains on one device only, not as kind {parallelism.kind!r}"
    elif parallelism.num_replicas > 1:
        error = (
            f"trains one replica only, not {parallelism.num_replicas}: with several, "
            "keras.Model.fit is wrong for clipped gradients and uneven batches"
        )
    elif parallelism.micro_batches > 1:
        error = (
            f"takes a batch as a whole: micro_batches must be 1, not {parallelism.micro_batches}"
        )
    elif workload.computes_rows:
        error = (
            f"has no place for {type(workload).__name__}.per_example, which runs inside the graph "
            'of an epoch: use loop="graph", or map the rows in load_data'
        )
    if error:
        raise InvalidSettingsError([f'loop="fit" {error}'])


def _made(workload: type[Workload]) -> Workload:
    try:
        return workload()
    except TypeError as error:
        raise InvalidSettingsError(
            [f"{workload.__name__} cannot be made without arguments ({error}): give an instance"]
        ) from error


def default_resources(parallelism: Parallelism) -> TrialResources:
    """Return the default reservation of a trial on the running cluster."""
    return parallelism.resources(gpus_in_cluster=_cluster().get("GPU", 0) > 0)


def check_cluster(resources: TrialResources, parallelism: Parallelism = Mirrored()) -> None:  # noqa: B008  frozen
    """Refuse a reservation that the running cluster can never hold.

    Args:
        resources: What a trial reserves.
        parallelism: How it is spread.

    Raises:
        UnavailableResourcesError: Says what was asked for and what there is.
    """
    if not ray.is_initialized():
        return
    shares = parallelism.shares(resources)
    share = shares[0]
    room = room_by_node(share)
    if num_trials(room, parallelism, shares):
        return
    asked = _format_counts(share.bundle)
    if not any(room):
        raise UnavailableResourcesError(
            f"a trial asks for {asked}{' for each worker' if parallelism.num_workers > 1 else ''}, "
            "but no node of the Ray cluster has that (the most of each: "
            f"{_format_counts(largest_node(share))}): it would wait for ever; ask for less, or add "
            "a machine"
        )
    if sum(room) >= parallelism.num_workers and len(set(shares)) > 1:
        raise UnavailableResourcesError(
            f"a trial asks for {sum(each.cpus for each in shares)} CPU in all, "
            f"{_format_counts(shares[-1].bundle)} of it beside its {parallelism.num_workers} "
            "workers, which the Ray cluster does not have: it would wait for ever; use fewer "
            "workers, server_cpus: 0, or add machines"
        )
    nodes = f"{sum(map(bool, room))} of {len(room)} nodes"
    raise UnavailableResourcesError(
        f"a trial asks for {parallelism.num_workers} workers with {asked} each, placement "
        f"{parallelism.placement!r}, but the Ray cluster has room for {sum(room)} such workers on "
        f"{nodes}: it would wait for ever; use fewer workers"
        + (", another placement" if parallelism.placement == "strict_spread" else "")
        + ", or add machines"
    )


def _format_counts(counts: dict[str, float]) -> str:
    return ", ".join(f"{count:g} {kind}" for kind, count in counts.items())


def _placement_group(
    parallelism: Parallelism, resources: TrialResources | None, config: Any
) -> tune.PlacementGroupFactory:
    wanted = resources or default_resources(parallelism)
    check_cluster(wanted, parallelism)
    bundles = [share.bundle for share in parallelism.shares(wanted)]
    if type(parallelism) in _IN_PROCESSES:
        bundles = [{}, *bundles]  # the trial's own actor stands beside its first worker
    return tune.PlacementGroupFactory(bundles, strategy=parallelism.placement.upper())


def _cluster() -> dict[str, float]:
    return dict(ray.cluster_resources()) if ray.is_initialized() else {}
