"""Workloads whose ``load_data`` sets attributes, and a process that starts trials of them."""

import copy

import numpy as np

from tune_tf.data import DataLoader
from tune_tf.workload import Data, Workload

ROWS = np.arange(4.0)


class Sets(Workload):
    """A workload whose ``load_data`` does what it is told to."""

    def __init__(self, load=lambda self, config: None, **attributes):
        self.load = load
        self.__dict__.update(attributes)

    def load_data(self, config):
        self.load(self, config)
        return Data((ROWS, ROWS))

    def build_model(self, config):
        raise NotImplementedError


class Process:
    """Starts one trial after another, each with a workload as new."""

    def __init__(self, workload, sweep_key=None):
        self._workload = workload
        self._loader = DataLoader(sweep_key)

    def start(self, config):
        """Return a trial's data and its workload."""
        workload = copy.deepcopy(self._workload)
        loaded = self._loader.load(workload, config)
        return loaded, loaded.workload
