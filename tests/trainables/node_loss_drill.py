"""Several nodes on this machine, of which two are lost one after the other; prints what came of it.

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
from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from tune_tf import Mirrored, MultiWorker, trainable
from tune_tf.trainables.fewer_workers import fewer_workers
from tune_tf.workloads.digits import DigitsMLP

CONFIG = {"width": 8, "learning_rate": 1e-2, "dropout": 0.0, "batch_size": 100}
NUM_EPOCHS = 6
KILLED_AFTER = 3
MARK = "NODE_LOSS_DRILL"


class StopAtTwo(FIFOScheduler):
    """Stops every trial after its second iteration."""

    def on_trial_result(self, tune_controller, trial, result):
        return TrialScheduler.STOP if result["training_iteration"] >= 2 else TrialScheduler.CONTINUE


class Recorder(tune.Callback):
    """Notes what a trial reports and where it stands; takes its second node away if told to."""

    def __init__(self, cluster=None):
        self._cluster = cluster
        self.nodes = []
        self.recovered_after_s = None
        self.num_workers = []
        self.died = None

    def on_trial_result(self, iteration, trials, trial, result, **info):
        self.num_workers.append(result["num_workers"])
        self.nodes = self.nodes or nodes_of_trials()
        if self._cluster and self.died is None and result["training_iteration"] == KILLED_AFTER:
            head = self._cluster.head_node.node_id
            lost = next(node for node in reversed(self.nodes) if node != head)
            kill_node(self._cluster, lost)
            self.died = time.monotonic()

    def on_trial_recover(self, iteration, trials, trial, **info):
        self.recovered_after_s = time.monotonic() - self.died


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


def sweep(parallelism, recorder, **arguments):
    """Run one trial; return how it ended."""
    given = {
        "config": CONFIG,
        "stop": {"training_iteration": NUM_EPOCHS},
        "max_failures": 2,
        "verbose": 0,
        "storage_path": tempfile.mkdtemp(),
        "checkpoint_config": tune.CheckpointConfig(checkpoint_frequency=1),
        "callbacks": [*fewer_workers(parallelism), recorder],
        "raise_on_failed_trial": False,
    }
    trials = tune.run(trainable(DigitsMLP, parallelism, seed=1), **(given | arguments)).trials
    return {
        "statuses": [trial.status for trial in trials],
        "iterations": [trial.last_result["training_iteration"] for trial in trials],
        "pids": [trial.last_result["pid"] for trial in trials],
        "loss": trials[0].last_result["loss"],
        "val_loss": trials[0].last_result["val_loss"],
        "num_failures": trials[0].num_failures,
        "nodes": recorder.nodes,
        "num_workers": recorder.num_workers,
        "recovered_after_s": recorder.recovered_after_s,
        "left": left_over(),
    }


def on_one_device():
    """Return the last result of the same trial in this process, never disturbed."""
    alone = trainable(DigitsMLP, Mirrored(), seed=1)(config=CONFIG)
    for _ in range(NUM_EPOCHS):
        result = alone.train()
    alone.stop()
    return {name: result[name] for name in ("loss", "val_loss")}


def main():
    os.environ[MARK] = uuid.uuid4().hex
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    for _ in range(2):
        cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    apart = MultiWorker(2, placement="strict_spread")
    try:
        told = {
            "stopped": sweep(
                apart,
                Recorder(),
                scheduler=StopAtTwo(),
                num_samples=2,
                max_concurrent_trials=1,
                reuse_actors=True,
            ),
            "node_lost": sweep(apart, Recorder(cluster)),
            "fewer": sweep(
                MultiWorker(2, placement="strict_spread", min_workers=1), Recorder(cluster)
            ),
        }
    finally:
        ray.shutdown()
        cluster.shutdown()
    told["one_device"] = on_one_device()
    sys.stdout.write("\n" + json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
