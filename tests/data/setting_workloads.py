"""Workloads whose ``load_data`` sets attributes, and a process that starts trials of them."""

from typing import ClassVar

import numpy as np

from tune_tf.data import LoadCache, NodeDataLoader
from tune_tf.workload import Data, Workload

ROWS = np.arange(4.0)


class Sets(Workload):
    """A workload whose ``load_data`` does what it is told to."""

    of_class: ClassVar = {"kept": 1}

    def __init__(self, load=lambda self, config: None, **attributes):
        self.load = load
        self.__dict__.update(attributes)

    def load_data(self, config):
        self.load(self, config)
        return Data((ROWS, ROWS))

    def build_model(self, config):
        raise NotImplementedError


class Process:
    """Starts one trial after another as a Trainable does.

    Args:
        workload: Whose data.
        keep: Data sets that it keeps.
    """

    def __init__(self, workload, keep=2):
        self.workload = workload
        self.num_loads = 0
        loads = NodeDataLoader(workload, None)

        def load(config):
            self.num_loads += 1
            return loads.load(config)

        self.cache = LoadCache(load, keep)

    def start(self, config):
        """Return what the other methods of the workload see in this trial."""
        self.cache.get(config)
        return {name: value for name, value in vars(self.workload).items() if name != "load"}


def setting(self, config):
    self.mean = config["a"] * 10


class Nested:
    def __init__(self):
        self.inner = {"values": []}


A, B = {"a": 1, "lr": 0.1}, {"a": 2, "lr": 0.1}
