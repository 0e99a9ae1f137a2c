"""An actor that serves all of a job's processes on one node."""

from typing import Any

NAMESPACE = "tune_tf"
"""Ray's namespace of such actors; their names tell the job and the node."""


def node_actor(kind: type, what: str, *arguments: Any, max_restarts: int = 0) -> Any:
    """Return the handle of this node's actor, a new one if there is none.

    It reserves nothing, as the trials that wait for it have often reserved all CPUs, and outlives
    the trial that makes it: it has to end itself.

    Args:
        kind: Its class.
        what: It keeps; part of its name.
        arguments: Of the class.
        max_restarts: Times that Ray starts it anew where its process dies; -1 for always.
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
