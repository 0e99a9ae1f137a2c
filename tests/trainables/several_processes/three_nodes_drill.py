"""Trials on three nodes of this machine, which lose processes and nodes; prints what came of them.

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
from sklearn.datasets import load_digits

from tune_tf import Data, Mirrored, MultiWorker, Workload, trainable
from tune_tf.data import prepared

LOSSES = ("mean", "masked", "whole batch")
NUM_ROWS = 240
NUM_EPOCHS = 6
NODES = 3
WORKERS = MultiWorker(NODES, placement="strict_spread")
SETTINGS = {"num_cpus": 1, "object_store_memory": 150 * 2**20}
MARK = "THREE_NODES_DRILL"
CURVES = ("loss", "mae", "val_loss", "val_mae")


class Digits(Workload):
    """Images to draw again row by row; writes down where they are loaded and prepared.

    Args:
        log: File of what was done, by node.
        delay_s: Time that the preparation of a row takes; with 0.03, tasks take over.
    """

    def __init__(self, log, delay_s=0):
        self.log, self.delay_s = str(log), delay_s

    def load_data(self, config):
        note(self.log, "load")
        begun = time.monotonic()  # else one node may train all trials before the others start
        while Path(self.log).read_text().count("load") < NODES and time.monotonic() < begun + 60:
            time.sleep(0.1)
        images = load_digits().images
        records = [(image, 8 - i % 5, self.log, self.delay_s) for i, image in enumerate(images)]
        x = prepared(records[:NUM_ROWS], cut_off)
        return Data((x[:200], x[:200]), (x[200:], x[200:]))

    def build_model(self, config):
        import keras

        masking = [keras.layers.Masking()] if config["loss"] == "masked" else []
        dense = keras.layers.Dense(16, "relu"), keras.layers.Dense(8, "sigmoid")
        model = keras.Sequential([keras.Input((8, 8)), *masking, *dense])
        loss = "dice" if config["loss"] == "whole batch" else "mse"
        optimizer = keras.optimizers.Adam(0.01, global_clipnorm=0.1)
        model.compile(optimizer, loss, metrics=["mae"])
        return model


def cut_off(record):
    """Return an image of a few rows: what is prepared."""
    image, num_rows, log, delay_s = record
    note(log, "prepare")
    time.sleep(delay_s)
    image = (image / 16).astype("float32")
    image[num_rows:] = 0
    return image


def note(log, what):
    with Path(log).open("a") as file:
        file.write(f"{what} {ray.get_runtime_context().get_node_id()}\n")


class Faults(tune.Callback):
    """Kills a process or a node of a trial when one reports an epoch; notes what trials report.

    Args:
        by_epoch: "process", "node" or "replaced node", by the first epoch of any trial after which
            it may happen.
    """

    def __init__(self, cluster, by_epoch):
        self._cluster, self._by_epoch = cluster, dict(by_epoch)
        self.results = {}

    def on_trial_result(self, iteration, trials, trial, result, **info):
        self.results.setdefault(trial.trial_id, []).append(result)
        first, fault = next(iter(self._by_epoch.items()), (NUM_EPOCHS, ""))
        victims = worker_processes() or [result["pid"]]
        if fault != "process":
            head = self._cluster.head_node
            victims = [pid for pid in victims if pid not in below(head)]
        if result["training_iteration"] < first or not fault or not victims:
            return
        del self._by_epoch[first]
        if fault == "process":
            os.kill(victims[-1], signal.SIGKILL)
        else:
            nodes = self._cluster.list_all_nodes()
            kill_node(self._cluster, next(node for node in nodes if victims[-1] in below(node)))
        if fault == "replaced node":
            self._cluster.add_node(**SETTINGS)


def kill_node(cluster, node):
    """End a node as a power cut does: its raylet and all that runs under it."""
    for pid in below(node):
        os.kill(pid, signal.SIGKILL)
    cluster.remove_node(node, allow_graceful=False)


def below(node):
    """Return the processes of a node."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found = [info.process.pid for infos in node.all_processes.values() for info in infos]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def worker_processes():
    """Return the ids of this drill's worker processes."""
    mark = f"{MARK}={os.environ[MARK]}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if b"WorkerActor" in (folder / "cmdline").read_bytes():
                found += [int(folder.name)] if mark in (folder / "environ").read_bytes() else []
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


def sweep(cluster, folder, parallelism, losses=LOSSES, faults=(), delay_s=0):
    """Run a trial of each loss, which suffer faults; return how they ended."""
    log = Path(folder, f"{uuid.uuid4().hex}.txt")
    callback = Faults(cluster, faults)
    trials = tune.run(
        trainable(Digits(log, delay_s), parallelism, seed=1),
        config={"loss": tune.grid_search([*losses]), "batch_size": 64},
        stop={"training_iteration": NUM_EPOCHS},
        max_failures=3,
        reuse_actors=True,
        verbose=0,
        storage_path=folder,
        checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1),
        callbacks=[callback],
        raise_on_failed_trial=False,
    ).trials
    lines = [tuple(line.split()) for line in log.read_text().splitlines()]
    results = [of for _, of in sorted(callback.results.items())]
    return {
        "statuses": [trial.status for trial in trials],
        "failures": [trial.num_failures for trial in trials],
        "epochs": [[each["training_iteration"] for each in of] for of in results],
        "num_workers": [[each.get("num_workers") for each in of] for of in results],
        "curves": [curves(of) for of in results],
        "loads": sorted(lines.count(line) for line in {*lines} if line[0] == "load"),
        "prepared": sum(what == "prepare" for what, _ in lines),
        "nodes": len({node for what, node in lines if what == "prepare"}),
        "left": left_over(),
    }


def curves(results):
    """Return the metrics of each epoch, as they were reported last."""
    by_epoch = {each["training_iteration"]: each for each in results}
    return [[each.get(name) for name in CURVES] for _, each in sorted(by_epoch.items())]


def main():
    os.environ[MARK] = uuid.uuid4().hex
    cluster = Cluster(initialize_head=True, head_node_args=SETTINGS | {"include_dashboard": False})
    for _ in range(NODES - 1):
        cluster.add_node(**SETTINGS)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    told = {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            told["undisturbed"] = sweep(cluster, folder, Mirrored(), delay_s=0.03)
            told["disturbed"] = sweep(cluster, folder, Mirrored(), faults={2: "process", 3: "node"})
            cluster.add_node(**SETTINGS)
            told["workers"] = sweep(cluster, folder, WORKERS, faults={3: "replaced node"})
        finally:
            ray.shutdown()
            cluster.shutdown()
    sys.stdout.write("\n" + json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
