"""From a workload and a parallelism to a class that ``tune.run`` takes."""

import functools
from typing import Any

import ray
from ray import tune

from tune_tf.errors import InvalidSettingsError, UnavailableResourcesError, one_of
from tune_tf.parallelism import Mirrored, Parallelism
from tune_tf.resources import TrialResources
from tune_tf.trainables.mirrored import LoopKind, MirroredTrainable
from tune_tf.trainables.recycling import Recycling
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
    recycling: Recycling | None = None,
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
        seed: Of the sweep; weights, dropout and data order of a trial follow from it and the
            trial's number. None: a seed of its own for each trial.
        checkpoint_interval_s: Seconds of training between two checkpoints of a running trial;
            None leaves checkpoints to Tune's ``CheckpointConfig``.
        recycling: When a reused process has traced too much.

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
    if loop == "fit" and parallelism.num_replicas > 1:
        raise InvalidSettingsError(
            [
                f'loop="fit" trains one replica only, not {parallelism.num_replicas}: with '
                "several, keras.Model.fit is wrong for clipped gradients and uneven batches"
            ]
        )
    if loop == "fit" and parallelism.micro_batches > 1:
        raise InvalidSettingsError(
            [
                f'loop="fit" takes a batch as a whole: micro_batches must be 1, not '
                f"{parallelism.micro_batches}"
            ]
        )
    if resources is not None:
        parallelism.check(resources)
    prepared = tune.with_parameters(
        MirroredTrainable,
        workload=workload,
        parallelism=parallelism,
        resources=resources or default_resources(parallelism),
        loop=loop,
        seed=seed,
        checkpoint_interval_s=checkpoint_interval_s,
        recycling=recycling,
    )
    request = functools.partial(_placement_group, parallelism, resources)
    return tune.with_resources(prepared, request)


def _made(workload: type[Workload]) -> Workload:
    try:
        return workload()
    except TypeError as error:
        raise InvalidSettingsError(
            [f"{workload.__name__} cannot be made without arguments ({error}): give an instance"]
        ) from error


def default_resources(parallelism: Parallelism) -> TrialResources:
    """Return what a trial reserves when nothing is said, on the cluster of the moment."""
    return parallelism.resources(gpus_in_cluster=_cluster().get("GPU", 0) > 0)


def check_cluster(resources: TrialResources) -> None:
    """Refuse a reservation that no node of the running cluster can ever hold.

    Raises:
        UnavailableResourcesError: Says what was asked for and what the largest node has.
    """
    if not ray.is_initialized():
        return
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    wanted = resources.bundle
    if any(all(node.get(kind, 0) >= count for kind, count in wanted.items()) for node in nodes):
        return
    most = {kind: max((node.get(kind, 0) for node in nodes), default=0) for kind in wanted}
    asked, there = (
        ", ".join(f"{count:g} {kind}" for kind, count in counts.items())
        for counts in (wanted, most)
    )
    raise UnavailableResourcesError(
        f"a trial asks for {asked}, but no node of the Ray cluster has that (the most of each: "
        f"{there}): it would wait for ever; ask for less, or add a machine"
    )


def _placement_group(
    parallelism: Parallelism, resources: TrialResources | None, config: Any
) -> tune.PlacementGroupFactory:
    wanted = resources or default_resources(parallelism)
    check_cluster(wanted)
    return tune.PlacementGroupFactory([wanted.bundle])


def _cluster() -> dict[str, float]:
    return dict(ray.cluster_resources()) if ray.is_initialized() else {}
