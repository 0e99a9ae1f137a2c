"""Eight processes on two nodes ask for the same data, all CPUs being reserved; prints what came.

A process of its own: the tests' process is connected to another Ray cluster.
"""

import json
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import ray
from ray.cluster_utils import Cluster
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from tune_tf.data import preparation_counts, prepared

NUM_RECORDS = 64


def node():
    return ray.get_runtime_context().get_node_id()


def main():
    seen = tempfile.mkdtemp()
    deadline = time.time() + 120

    def read(number):
        if number < 4:  # of the process that begins; it takes so long that a pool goes on
            threading.Event().wait(0.3)
            return np.full((8, 8), number, np.float32), number
        (Path(seen) / node()).touch()
        while len([*Path(seen).iterdir()]) < 2 and time.time() < deadline:
            threading.Event().wait(0.05)  # until there is a worker on the other node as well
        return np.full((8, 8), number, np.float32), number

    @ray.remote(num_cpus=0.25)
    def ask():
        images, numbers = prepared(range(NUM_RECORDS), read).rows
        return node(), images[:, 0, 0].tolist() == numbers.tolist() == [*range(NUM_RECORDS)]

    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    try:
        group = ray.util.placement_group([{"CPU": 1}] * 2, strategy="STRICT_SPREAD")
        ray.get(group.ready())
        free = ray.available_resources().get("CPU", 0)
        found = ray.get(
            [
                ask.options(
                    scheduling_strategy=PlacementGroupSchedulingStrategy(
                        group, number % 2, placement_group_capture_child_tasks=True
                    )
                ).remote()
                for number in range(8)
            ]
        )
        counts = preparation_counts()
    finally:
        ray.shutdown()
        cluster.shutdown()
    told = {
        "num_nodes_of_askers": len({node for node, _ in found}),
        "num_nodes_of_workers": len([*Path(seen).iterdir()]),
        "free_cpus": free,
        "counts": [counts.num_asked, counts.num_run],
        "all_equal": all(equal for _, equal in found),
    }
    sys.stdout.write("\n" + json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
