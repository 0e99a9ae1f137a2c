"""A trial's numbers are its own, whatever its model depends on and whatever was trained before.

For each row of the table: reused = fresh = restored, bit for bit, and = ``fit``; and, as slow
tests, = several replicas, pieces of a batch and stages, or refused by name.
"""

import functools
import gc
import json
import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from contract_cells import CELLS, EQUAL, SERVER, SPLIT, TOLERANCE, WAYS
from contract_cells import GUARDS as GUARDED_CELLS
from contract_row import ONE, SEVERAL
from contract_table import TABLE
from fit_reference import FIT_TOLERANCE, distance, train_by_fit
from guards import guarded
from server_and_worker import ServerAndWorker

from tune_tf.errors import WorkloadError
from tune_tf.parallelism import Mirrored
from tune_tf.testing.reuse_contract import SEED, run_apart, train
from tune_tf.training.loop import GraphLoop

pytestmark = pytest.mark.tf


@pytest.fixture(scope="module")
def reused(replicas_of):
    """A loop that trains all trials of all rows."""
    return GraphLoop(replicas_of(1))


@pytest.fixture(scope="module")
def fresh(replicas_of):
    """Return a function from a row to the trial of its last config in a fresh loop."""

    @functools.cache
    def run(name):
        row, loop = TABLE[name], GraphLoop(replicas_of(1))
        return run_apart(lambda: train(loop, row.workload, row.configs[-1]))

    return run


GUARDS = (
    "last batch of one row",
    "sample_weight",
    "numbers of AdamW",
    "numbers of Dropout",
    "Normalization.adapt",
    "exclude_from_weight_decay",
    "nested model",
    "MixUp",
    "variable of a loss that a callback anneals",
    "layers that the workload keeps",
    "operation of TensorFlow with seed 5",
    "variable that a loss makes",
    "callback that remembers",
    "SwapEMAWeights",
    "number that code in C reads",
    "train_step reads the workload",
    "two models without a call that train one another",
    "closure",
    "metric of a whole batch",
)
"""One for each kind of thing that a trial's numbers may depend on."""


@pytest.mark.parametrize("name", guarded(list(TABLE), GUARDS))
def test_a_trial_is_that_of_a_fresh_process_and_of_fit(name, reused, fresh):
    row, last = TABLE[name], TABLE[name].configs[-1]
    own_graph = row.graph not in (ONE, SEVERAL)
    earlier = row.configs[:-1] if own_graph else row.configs[::-1]
    runs = [train(reused, row.workload, config, SEED + 1) for config in earlier]
    runs.append(train(reused, row.workload, last))
    if row.restarts:
        runs.append(train(reused, row.workload, last, restart=True))

    for run in runs[len(earlier) :]:
        assert run.bits == fresh(name).bits, f"{distance(run, fresh(name)):.2g} off"
    if row.by_fit:
        by_fit = run_apart(lambda: train_by_fit(row.workload, last))
        assert distance(fresh(name), by_fit) <= FIT_TOLERANCE
    graphs = {id(run.graph) for run in runs}
    if own_graph:
        assert all(re.search(row.graph, run.own_code) for run in runs), runs[0].own_code
        assert len(graphs) == len(runs)
    else:
        assert {run.own_code for run in runs} == {""}
        assert len(graphs) == (1 if row.graph == ONE else len(row.configs))


@pytest.fixture(scope="module")
def loop_of(replicas_of, loop_on_grid):
    """Return a function from a way to split a batch to a loop."""

    def loop(way):
        if way == SERVER:
            return ServerAndWorker(replicas_of(1))
        num_replicas, num_stages, pieces = WAYS[way]
        if num_stages > 1:
            return loop_on_grid(None, num_replicas, num_stages, pieces)
        several = num_replicas > 1
        spread = Mirrored(num_replicas, synchronized_batch_norm=several, micro_batches=pieces)
        return GraphLoop(replicas_of(num_replicas), spread)

    return loop


@pytest.mark.parametrize("cell", guarded(list(CELLS), GUARDED_CELLS))
def test_a_split_batch_is_a_whole_one_or_refused(cell, loop_of, fresh):
    name, way = CELLS[cell]
    row, loop, expected = TABLE[name], loop_of(way), SPLIT[name][way]
    if expected != EQUAL:
        with pytest.raises(WorkloadError, match=expected):
            train(loop, row.workload, row.configs[-1])
        return
    if row.graph == ONE:  # the last is to be trained by the graph of the first
        train(loop, row.workload, row.configs[0])
    run = train(loop, row.workload, row.configs[-1], restart=row.restarts)

    assert distance(run, fresh(name)) <= TOLERANCE


PROCESS = """
import json, sys
sys.path[:0] = sys.argv[1:4]
from rows_of_keras import ROWS
from tune_tf.testing.reuse_contract import train
from tune_tf.training.loop import GraphLoop
from tune_tf.training.replicas.replicas import Replicas
from tune_tf.training.devices import Devices

row = ROWS[sys.argv[4]]
run = train(GraphLoop(Replicas(Devices(("CPU:0",)))), row.workload, row.configs[-1])
print(json.dumps([{k: float(v).hex() for k, v in h.items()} for h in run.history]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["LSTM with dropout", "MixUp"])
def test_a_fresh_loop_is_a_process_of_its_own(name, fresh):
    folder = Path(__file__).parent
    paths = [str(each) for each in (folder, folder.parent, folder.parents[1])]
    told = subprocess.run(
        [sys.executable, "-c", PROCESS, *paths, name], capture_output=True, text=True, check=True
    ).stdout

    history = fresh(name).history
    assert json.loads(told.splitlines()[-1]) == [
        {k: float(v).hex() for k, v in metrics.items()} for metrics in history
    ]


@pytest.mark.slow
def test_many_trials_of_a_process_leave_nothing(replicas_of):
    row, loop, process = TABLE["nested model"], GraphLoop(replicas_of(1)), psutil.Process()
    for number in range(80):
        train(loop, row.workload, row.configs[number % 2], seed=number)
        if number == 20:
            gc.collect()
            before = process.memory_info().rss, process.num_threads(), process.num_fds()
    gc.collect()

    assert loop.num_programs == 2
    assert (process.memory_info().rss - before[0]) / 60 < 1e5, "bytes a trial"
    assert process.num_threads() - before[1] <= 2
    assert process.num_fds() - before[2] <= 2


def test_each_cell_is_of_a_row():
    assert set(SPLIT) <= set(TABLE)
