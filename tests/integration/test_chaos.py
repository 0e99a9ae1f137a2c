"""Twenty kills over one sweep, which comes to what it comes to without them.

The searcher draws at random and the scheduler stops nobody, so each trial's config and curve follow
from the seeds and its number alone, whatever was killed when: see
:func:`tune_tf.testing.chaos.assert_as_without_faults`.
"""

import sys
from pathlib import Path

import pytest
from tracking_server import TrackingServer

from tune_tf.testing.chaos import ChaosDrill, assert_as_without_faults, draw_kills

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.mlflow,
    pytest.mark.alone,  # two sweeps and a server; beside others each start takes minutes
    pytest.mark.timeout(1500),
]

COMMAND = [sys.executable, str(Path(__file__).parents[2] / "scripts" / "sweep.py")]
KILLS = {"driver": 3, "raylet": 2, "trial": 11, "server": 4}
SEED = 8

SWEEP = """\
name: chaos
workload: lasting.py:Lasting
objective: {{metric: val_loss, mode: min}}
space:
  learning_rate: {{loguniform: [1.0e-4, 1.0e-1]}}
  width:         {{choice: [16, 32]}}
  batch_size:    64
seed: 3
searcher: {{sampler: random}}
scheduler: {{name: fifo, max_t: 24}}
resources: {{cpus: 1}}
max_concurrent_trials: 2
max_failures: 20                 # as many as trials' processes are killed, should it be one trial
checkpoint_interval_s: 0
budget: {{num_samples: 16}}
mlflow: {mlflow}
"""

WORKLOAD = """
import numpy as np
import tune_tf
from tune_tf.workloads.digits import DigitsMLP

class Lasting(DigitsMLP):            # an epoch is long enough to be hit in
    def load_data(self, config):
        data = super().load_data(config)
        rows = tuple(np.concatenate([part] * 8) for part in data.train)
        return tune_tf.Data(train=rows, validation=data.validation)
"""


@pytest.fixture
def server(tmp_path, empty_store):
    server = TrackingServer(tmp_path, empty_store)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def drill(tmp_path, command):
    """Return a drill in a folder of its own, whose processes are known to be this test's."""

    class Drill(ChaosDrill):
        def _popen(self, words, log):
            return command(*words[len(COMMAND) :], cwd=self._folder, output=log)

    def make(name, mlflow, server=None):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "lasting.py").write_text(WORKLOAD)
        file = folder / "chaos.yaml"
        file.write_text(SWEEP.format(mlflow=mlflow))
        return Drill(COMMAND, file, folder, server, seed=SEED)

    return make


def test_twenty_kills_change_nothing_of_what_a_sweep_comes_to(drill, server):
    from mlflow import MlflowClient

    quiet = drill("quiet", "null").run()
    faulty = drill("faulty", f"{{tracking_uri: {server.uri!r}, log_best_model: false}}", server)

    kills = draw_kills(KILLS, SEED)
    assert len(kills) == 20
    assert_as_without_faults(faulty.run(kills), quiet, MlflowClient(server.uri))
