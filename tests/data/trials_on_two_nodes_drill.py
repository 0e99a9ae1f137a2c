"""Trials on two nodes, which say how often their data were loaded.

A cluster of its own that shares nothing with the tests' one; prints what it saw as JSON.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import ray
from ray import tune
from ray.cluster_utils import Cluster
from sklearn.datasets import load_digits

from tune_tf import Data, trainable
from tune_tf.data import prepared
from tune_tf.workloads.digits import DigitsMLP

NUM_TRIALS = 4


def scaled(image):
    """Return a row of an image: what is prepared."""
    return (image / 16).astype(np.float32)[..., None]


class CountedDigits(DigitsMLP):
    """The digits, of which each loading is written down with its node and process."""

    def __init__(self, log):
        self.log = str(log)

    def load_data(self, config):
        node = ray.get_runtime_context().get_node_id()
        with Path(self.log).open("a") as file:
            file.write(f"{node} {os.getpid()}\n")
        begun = time.monotonic()  # else one process may train all trials before the other starts
        while len(Path(self.log).read_text().splitlines()) < 2 and time.monotonic() < begun + 60:
            time.sleep(0.1)
        images, labels = load_digits().images, load_digits().target
        x = prepared([*images], scaled).rows
        return Data((x[:1000], labels[:1000]), (x[1000:], labels[1000:]))


class Nodes(tune.Callback):
    """Where the trials ran."""

    def __init__(self):
        self.pids = {}

    def on_trial_result(self, iteration, trials, trial, result, **info):
        self.pids[trial.trial_id] = result["pid"]


def main():
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    nodes = Nodes()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "loads.txt")
        try:
            analysis = tune.run(
                trainable(CountedDigits(log), seed=3),
                config={"width": 8, "learning_rate": tune.uniform(0.001, 0.1)},
                num_samples=NUM_TRIALS,
                max_concurrent_trials=2,
                reuse_actors=True,
                stop={"training_iteration": 1},
                callbacks=[nodes],
                storage_path=folder,
                verbose=0,
            )
        finally:
            ray.shutdown()
            cluster.shutdown()
        loads = [line.split() for line in log.read_text().splitlines()]
    told = {
        "statuses": [trial.status for trial in analysis.trials],
        "processes": len(set(nodes.pids.values())),
        "loads": len(loads),
        "nodes": len({node for node, _ in loads}),
    }
    sys.stdout.write("\n" + json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
