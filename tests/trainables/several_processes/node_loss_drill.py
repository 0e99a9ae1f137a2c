"""Three nodes on this machine; a trial on two of them loses one. Prints what came of it.

A process of its own: the tests' process is connected to another Ray cluster.
"""

import json
import os
import signal
import sys
import tempfile
import time
import uuid
from pathlib import Path

import ray
from ray import tune
from ray.cluster_utils import Cluster

from tune_tf import MultiWorker, trainable
from tune_tf.workloads.digits import DigitsMLP

CONFIG = {"width": 8, "learning_rate": 1e-2, "dropout": 0.0, "batch_size": 100}
NUM_EPOCHS = 6
KILLED_AFTER = 3
MARK = "NODE_LOSS_DRILL"


class Recorder(tune.Callback):
    """Notes what a trial reports and where it stands; takes its second node away."""

    def __init__(self, cluster):
        self._cluster = cluster
        self.nodes = []
        self.num_workers = []
        self._killed = False

    def on_trial_result(self, iteration, trials, trial, result, **info):
        self.num_workers.append(result["num_workers"])
        self.nodes = self.nodes or nodes_of_trials()
        if not self._killed and result["training_iteration"] == KILLED_AFTER:
            head = self._cluster.head_node.node_id
            lost = next(node for node in reversed(self.nodes) if node != head)
            kill_node(self._cluster, lost)
            self._killed = True


def nodes_of_trials():
    """Return the node of each worker, in their order."""
    groups = ray.util.placement_group_table().values()
    created = next(group for group in groups if group["state"] == "CREATED")
    return [node for _, node in sorted(created["bundles_to_node_id"].items())]


def kill_node(cluster, node_id):
    """End a node as a power cut does: its raylet and all that runs under it."""
    node = next(node for node in cluster.list_all_nodes() if node.node_id == node_id)
    below = [info.process.pid for infos in node.all_processes.values() for info in infos]
    processes = processes_with_parents()
    for pid in below:
        below += [child for child, parent in processes.items() if parent == pid]
    for pid in below:
        os.kill(pid, signal.SIGKILL)
    cluster.remove_node(node, allow_graceful=False)


def processes_with_parents():
    """Return the parent of every process, by id."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            found[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    return found


def worker_processes():
    """Return the ids of this drill's worker processes."""
    mark = f"{MARK}={os.environ[MARK]}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if b"WorkerActor" in (folder / "cmdline").read_bytes():
                found += [folder.name] if mark in (folder / "environ").read_bytes() else []
        except OSError:
            continue
    return found


def left_over(patience_s=240):
    """Return what is left after a sweep, once Ray has had time to clear up."""
    deadline = time.monotonic() + patience_s
    while True:
        groups = [group["state"] for group in ray.util.placement_group_table().values()]
        left = {
            "groups": [state for state in groups if state != "REMOVED"],
            "processes": worker_processes(),
            "cpus": ray.cluster_resources()["CPU"] - ray.available_resources().get("CPU", 0),
        }
        if not any(left.values()) or time.monotonic() > deadline:
            return left
        time.sleep(0.5)


def sweep(parallelism, cluster):
    """Run one trial, which loses a node; return how it ended."""
    recorder = Recorder(cluster)
    [trial] = tune.run(
        trainable(DigitsMLP, parallelism, seed=1),
        config=CONFIG,
        stop={"training_iteration": NUM_EPOCHS},
        max_failures=2,
        verbose=0,
        storage_path=tempfile.mkdtemp(),
        checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1),
        callbacks=[recorder],
        raise_on_failed_trial=False,
    ).trials
    return {
        "status": trial.status,
        "loss": trial.last_result["loss"],
        "val_loss": trial.last_result["val_loss"],
        "num_failures": trial.num_failures,
        "nodes": recorder.nodes,
        "num_workers": recorder.num_workers,
        "left": left_over(),
    }


def main():
    apart = MultiWorker(2, placement="strict_spread")
    os.environ[MARK] = uuid.uuid4().hex
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    for _ in range(2):
        cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    try:
        told = sweep(apart, cluster)
    finally:
        ray.shutdown()
        cluster.shutdown()
    sys.stdout.write("\n" + json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
