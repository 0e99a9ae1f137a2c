"""Detached actors that serve all processes of a job on one node."""

from typing import Any

NAMESPACE = "tune_tf"
"""Ray namespace of these actors; their names contain the job and the node."""


def node_actor(kind: type, what: str, *arguments: Any, max_restarts: int = 0) -> Any:
    """Return the handle of this node's actor, creating it if it does not exist.

    It reserves no CPU, because the trials that wait for it have often reserved all of them. It is
    detached from the trial that creates it, so it has to exit by itself.

    Args:
        kind: Class of the actor.
        what: Prefix of its name.
        arguments: Arguments of the class.
        max_restarts: Times that Ray restarts the actor if its process dies; -1 for no limit.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    context = ray.get_runtime_context()
    node_id = context.get_node_id()
    return (
        ray.remote(kind)
        .options(
            name=f"{what}-{context.get_job_id()}-{node_id}",
            namespace=NAMESPACE,
            get_if_exists=True,
            lifetime="detached",
            num_cpus=0,
            max_restarts=max_restarts,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node_id, soft=False),
        )
        .remote(*arguments)
    )
