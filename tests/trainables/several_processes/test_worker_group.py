"""The workers of a trial: how they meet, and how one that goes wrong ends all."""

import os
from pathlib import Path

import pytest
import ray
import stand_in_workers
from processes import have_ended
from stand_in_workers import NotInstalledHere, Script, StandIn

from tune_tf.errors import WorkerError, WorkerLostError, WorkloadError
from tune_tf.parallelism import MultiWorker
from tune_tf.resources import TrialResources
from tune_tf.trainables.multi_worker import SynchronousWorker, WorkerGroup
from tune_tf.trainables.processes import Bundles, PickledWorkload, WorkerSetup
from tune_tf.trainables.trial_settings import TrialSettings

pytestmark = pytest.mark.cluster

ray.cloudpickle.register_pickle_by_value(stand_in_workers)  # Ray's workers cannot import it


@pytest.fixture
def start(ray_cluster, tmp_path):
    """Return a function that starts two stand-ins of which one goes wrong."""
    started = []

    def start(fault=None, rank=1, workload=None, worker_class=StandIn):
        settings = TrialSettings(MultiWorker(2), TrialResources(2))
        pickled = PickledWorkload.of(workload or Script(fault, rank, str(tmp_path)))
        setup = WorkerSetup(pickled, TrialResources(), settings)
        group = WorkerGroup(setup, Bundles(settings, None), worker_class)
        started.append(group)
        return group

    yield start
    for group in started:
        group.end()


def processes(folder):
    """Return the ids of all processes that were started, by rank."""
    return [[int(pid) for pid in Path(folder, str(r)).read_text().split()] for r in (0, 1)]


def test_each_worker_is_a_process_of_its_own_until_the_end(start):
    group = start()
    pids = group.call("epoch")
    group.end(finish=True)

    assert len({os.getpid(), *pids}) == 3
    assert have_ended(pids)
    with pytest.raises(WorkerLostError, match="have ended"):
        group.call("epoch")


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        pytest.param("dies", WorkerLostError, r"a process of the trial died: ", id="death"),
        pytest.param("raises", WorkerError, "worker 1: .*of the user's making", id="an error"),
    ],
)
def test_a_failing_worker_ends_all_workers_of_its_group(start, tmp_path, fault, error, message):
    group = start(fault)

    with pytest.raises(error, match=f"(?s){message}"):
        group.call("epoch")
    assert have_ended([pids[0] for pids in processes(tmp_path)])


@pytest.mark.slow
def test_a_workload_that_a_node_does_not_have_is_told(start):
    with pytest.raises(WorkloadError, match=r"worker \d on .*only_on_the_laptop.*runtime_env"):
        start(workload=NotInstalledHere(), worker_class=SynchronousWorker)
