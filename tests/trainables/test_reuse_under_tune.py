"""Trials of reused actors under Tune report what a fresh process trains, bit for bit."""

import sys
from collections import defaultdict
from pathlib import Path

import pytest
from ray import tune

from tune_tf.trainables import trainable
from tune_tf.trainables.trial_settings import seed_of_trial
from tune_tf.training.core.replicas import Replicas
from tune_tf.training.devices import Devices
from tune_tf.workload import Workload

pytestmark = [pytest.mark.tf, pytest.mark.cluster, pytest.mark.slow]

SEED, EPOCHS = 3, 2
TRAINING = Path(__file__).parents[1] / "training"
FOLDERS = [str(TRAINING), str(TRAINING / "contract")]
TOLD = [
    "delta of Huber",
    "Normalization.adapt",
    "regularizer of a variable",
    "callback that freezes a layer",
    "LSTM with dropout",
    "closure",
]


@pytest.fixture(scope="module")
def by_hand():
    """The modules of tests that train by hand: the rows of the contract, and how to run a trial."""
    before = list(sys.path)
    sys.path[:0] = FOLDERS
    try:
        import contract_table
        import trials
    finally:
        sys.path[:] = before
    return contract_table.TABLE, trials


class Results(tune.Callback):
    """Keeps what each trial reported."""

    def __init__(self):
        self.of_trial = defaultdict(list)

    def on_trial_result(self, iteration, trials, trial, result, **info):
        self.of_trial[trial].append(dict(result))


@pytest.fixture(scope="module")
def reported(ray_cluster, by_hand, tmp_path_factory):
    """What the trials of all configs of some rows reported, through two actors."""
    folders = FOLDERS

    class Told(Workload):  # of a function, so that Ray sends it to its workers whole
        def _found(self, config):
            if folders[0] not in sys.path:
                sys.path[:0] = folders
            from contract_table import TABLE

            row = TABLE[config["trial"]["told"]]
            return row.workload, row.configs[config["trial"]["index"]]

        def load_data(self, config):
            workload, value = self._found(config)
            return workload.load_data(value)

        def build_model(self, config):
            workload, value = self._found(config)
            return workload.build_model(value)

        def callbacks(self, config):
            workload, value = self._found(config)
            return workload.callbacks(value)

        def structure(self, config):
            workload, value = self._found(config)
            return workload.structure(value)

        def global_batch_size(self, config):
            return 8

    results = Results()
    table, _ = by_hand
    told = [(name, i) for name in TOLD for i in range(len(table[name].configs))]
    tune.run(
        trainable(Told, seed=SEED),
        config={"trial": tune.grid_search([{"told": name, "index": i} for name, i in told])},
        stop={"training_iteration": EPOCHS},
        reuse_actors=True,
        max_concurrent_trials=2,
        callbacks=[results],
        storage_path=str(tmp_path_factory.mktemp("sweep")),
        verbose=0,
    )
    return results.of_trial


def test_two_actors_serve_all_trials(reported, by_hand):
    table, _ = by_hand

    assert len(reported) == sum(len(table[name].configs) for name in TOLD)
    assert len({results[-1]["pid"] for results in reported.values()}) <= 2


@pytest.mark.parametrize("told", TOLD)
def test_a_trial_reports_what_a_fresh_process_trains(told, reported, by_hand):
    table, trials = by_hand
    row = table[told]
    replicas = Replicas(Devices(("CPU:0",)))
    for trial, results in reported.items():
        if trial.config["trial"]["told"] == told:
            seed = seed_of_trial(SEED, trial.trial_id, str(trial))
            value = row.configs[trial.config["trial"]["index"]]
            history, _ = trials.run_fresh(row.workload, replicas, value, seed, EPOCHS)
            assert [{k: r[k] for k in h} for r, h in zip(results, history, strict=True)] == history
