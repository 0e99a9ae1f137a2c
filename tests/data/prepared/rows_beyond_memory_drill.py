"""Three nodes with rows of twice their object store, one of which is lost; prints what was seen.

A process of its own: the tests' process is connected to another Ray cluster.
"""

import functools
import importlib
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import ray
from ray.cluster_utils import Cluster
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tune_tf import Data, Workload, trainable
from tune_tf.data import NodeDataLoader, preparation_counts, prepared
from tune_tf.data.leased_actor import NAMESPACE, actor_name
from tune_tf.data.prepare.prepare_actor import PrepareActor

STORE = 80 * 10**6
NUM_ROWS, NUM_FEATURES = 400, 100_000
LABELS = np.arange(NUM_ROWS, dtype=np.float32) % 3


def own_memory():
    """Return the bytes of this process that are not pages of a file."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def write_growth(path):
    """Write by how many bytes this process has grown, a line every 10 ms."""
    begun_with = own_memory()
    with Path(path).open("a", buffering=1) as file:
        while True:
            file.write(f"{own_memory() - begun_with}\n")
            time.sleep(0.01)


class InMemory(Workload):
    """A linear model on rows of this process."""

    def rows(self):
        return np.stack([row(number) for number in range(NUM_ROWS)])

    def load_data(self, config):
        x = self.rows()
        return Data((x[:320], LABELS[:320]), (x[320:], LABELS[320:]))

    def build_model(self, config):
        import keras

        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        return model


class Prepared(InMemory):
    """The same on prepared rows; the process that collects them writes by how much it grows."""

    def __init__(self, growth):
        self.growth = growth

    def rows(self):
        return prepared(range(NUM_ROWS), functools.partial(row, growth=self.growth)).rows


def row(number, growth=None):
    if growth:
        time.sleep(0.02)  # so long that other processes make most of the rows
    if growth and number == 0:  # which the collecting process makes itself
        importlib.import_module("ray.data")
        threading.Thread(target=write_growth, args=(growth,), daemon=True).start()
    return np.random.default_rng(number).random(NUM_FEATURES, np.float32) / 1e3


def losses(workload):
    result = trainable(workload, seed=3)(config={"batch_size": 32}).train()
    return result["loss"], result["val_loss"]


@ray.remote(num_cpus=0)
class Trial:
    def load(self, workload):
        """Return the sums of the rows."""
        self.data = NodeDataLoader(workload, "drill").load({})
        parts = self.data.train[0], self.data.validation[0]
        return [float(part.sum(dtype=np.float64)) for part in parts]


def on(node):
    return NodeAffinitySchedulingStrategy(node.node_id, soft=False)


def stored_bytes(address):
    """Return the bytes of all nodes' object stores in use."""
    command = [Path(sys.executable).with_name("ray"), "memory", "--stats-only"]
    told = subprocess.run([*command, "--address", address], capture_output=True, text=True).stdout
    return 2**20 * int(told.split("Plasma memory usage ")[1].split()[0])


def main():
    here = sys.modules[__name__]
    ray.cloudpickle.register_pickle_by_value(here)
    folder = tempfile.mkdtemp()
    node = {"num_cpus": 1, "object_store_memory": STORE}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    nodes = [cluster.head_node, *(cluster.add_node(**node) for _ in range(2))]
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    try:
        preparer = (
            ray.remote(PrepareActor)
            .options(
                name=actor_name("preparer"),
                namespace=NAMESPACE,
                lifetime="detached",
                num_cpus=0,
                max_concurrency=100,
                scheduling_strategy=on(nodes[2]),
            )
            .remote(300.0)
        )
        trials = [Trial.options(scheduling_strategy=on(each)).remote() for each in nodes]
        growth = Path(folder) / "growth"
        workload = Prepared(str(growth))
        sums = ray.get([trial.load.remote(workload) for trial in trials])
        copies = stored_bytes(cluster.address) / (4 * NUM_ROWS * NUM_FEATURES)
        num_run = preparation_counts().num_run
        trained = losses(workload)
        in_memory = losses(InMemory())
        cluster.remove_node(nodes[2], allow_graceful=False)
        last = Trial.options(scheduling_strategy=on(cluster.add_node(**node))).remote()
        sums.append(ray.get(last.load.remote(workload)))
        del preparer
    finally:
        ray.shutdown()
        cluster.shutdown()
    told = {
        "num_run": num_run,
        "copies": copies,
        "losses": trained,
        "losses_in_memory": in_memory,
        "sums": sums,
        "growth": max(map(int, growth.read_text().split())),
        "rows": 4 * NUM_ROWS * NUM_FEATURES,
    }
    sys.stdout.write("\n" + json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
