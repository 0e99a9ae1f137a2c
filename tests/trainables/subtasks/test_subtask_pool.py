"""The processes that train a trial's subtasks, and what becomes of one that goes wrong."""

import time
from contextlib import contextmanager

import pytest
import ray
import stand_in_subtasks
from processes import have_ended
from stand_in_subtasks import Script, StandIn

from tune_tf.errors import WorkerError, WorkerLostError, WorkloadError
from tune_tf.parallelism import Ensemble
from tune_tf.resources import TrialResources
from tune_tf.trainables.multi_process.processes import Bundles, ProcessTimeouts
from tune_tf.trainables.multi_process.worker import PickledWorkload, WorkerSetup
from tune_tf.trainables.subtasks.pool import SubtaskPool
from tune_tf.trainables.trial_process import TrialStart
from tune_tf.trainables.trial_settings import TrialSettings

pytestmark = pytest.mark.cluster

ray.cloudpickle.register_pickle_by_value(stand_in_subtasks)  # Ray's workers cannot import it

PATIENT = ProcessTimeouts(ping_interval_s=0.2, silent_s=240, finish_s=60)
QUICK = ProcessTimeouts(ping_interval_s=0.2, silent_s=10, finish_s=5)  # where a process is frozen
TRIAL = TrialStart("default", {}, 1)
NUM_ITERATIONS = 6


@contextmanager
def starting(folder):
    """Give a function that starts two stand-ins that train four subtasks."""
    group = ray.util.placement_group([{"CPU": 1.0}] * 2)
    assert group.wait(240)
    started = []

    def start(fault=None, **given):
        script = Script(str(folder), fault, **given)
        crew = SubtaskPool(
            WorkerSetup(
                PickledWorkload.of(script),
                TrialResources(),
                TrialSettings(
                    Ensemble(4, num_devices=2, task_retries=2), resources=TrialResources(2)
                ),
            ),
            Bundles(
                group,
                [TrialResources()] * 2,
                timeouts=QUICK if fault == "freezes" else PATIENT,
            ),
            StandIn,
        )
        started.append(crew)
        crew.begin(TRIAL)
        return crew

    yield start
    for crew in started:
        crew.end()
    ray.util.remove_placement_group(group)


@pytest.fixture
def start(ray_cluster, tmp_path):
    """Return a function that starts stand-ins."""
    with starting(tmp_path) as start:
        yield start


def trained(folder):
    """Return what each process trained."""
    return [
        [tuple(map(int, line.split())) for line in path.read_text().splitlines()]
        for path in folder.glob("trained-*")
    ]


def losses(crew, first=1):
    return [
        [each["loss"] for each in crew.iteration(number)[0]]
        for number in range(first, NUM_ITERATIONS + 1)
    ]


EXPECTED = [[10.0 * subtask + epoch for subtask in range(4)] for epoch in range(1, 7)]


@pytest.fixture(scope="module")
def healthy(ray_cluster, tmp_path_factory):
    """What a crew told that nothing goes wrong with; it begins anew before a trial is over."""
    folder = tmp_path_factory.mktemp("healthy")
    with starting(folder) as start:
        crew = start()
        crew.iteration(1)
        crew.iteration(2)
        told = {"snapshots": crew.snapshots(), "devices": crew.devices}
        crew.begin(TRIAL)
        told["losses"] = losses(crew)
        crew.begin(TRIAL)
        crew.iteration(1)
        told["pids"] = [int(path.name.partition("-")[2]) for path in folder.glob("trained-*")]
        crew.end(finish=True)
        told["ended"] = have_ended(told["pids"])
    return told


def test_all_subtasks_train_on_all_devices(healthy):
    assert healthy["losses"] == EXPECTED
    assert healthy["devices"] == "device 0; device 1"
    assert len(healthy["pids"]) == 2


def test_a_snapshot_and_its_results_belong_together(healthy):
    snapshots, results = healthy["snapshots"]

    assert {subtask: each.epoch for subtask, each in snapshots.items()} == {
        subtask: results.last_epoch(subtask) for subtask in range(4)
    }
    assert results.of(2) == [{"loss": each} for each in EXPECTED[1]]


def test_no_process_is_left_behind(healthy):
    assert healthy["ended"]


@pytest.mark.parametrize("fault", ["dies", pytest.param("freezes", marks=pytest.mark.slow)])
def test_a_subtask_that_goes_wrong_is_trained_again_in_a_fresh_process(start, tmp_path, fault):
    crew = start(fault, subtask=1, epoch=3, times=2)

    assert losses(crew) == EXPECTED
    assert sum(epochs.count((1, 3)) for epochs in trained(tmp_path)) == 3


def test_a_fresh_process_that_prepares_into_the_next_trial_is_named(start, tmp_path):
    crew = start("dies", subtask=1, epoch=2)
    hold = tmp_path / "hold"
    hold.touch()  # only the fresh process prepares from here on
    crew.iteration(1)
    crew.iteration(2)
    assert crew.devices != "device 0; device 1"
    crew.begin(TRIAL)
    hold.unlink()

    assert losses(crew) == EXPECTED
    deadline = time.monotonic() + 60
    while crew.devices != "device 0; device 1" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert crew.devices == "device 0; device 1"


@pytest.mark.slow
def test_what_else_a_process_had_is_kept_when_one_subtask_raises(start, tmp_path):
    crew = start("raises", subtask=0, epoch=4)

    assert losses(crew) == EXPECTED
    first = [epochs.count((subtask, 1)) for subtask in range(4) for epochs in trained(tmp_path)]
    assert sum(first) <= 4 + 2  # what failed and what waited in its line begin again


@pytest.mark.slow
def test_a_subtask_that_goes_wrong_too_often_fails_the_trial(start):
    crew = start("dies", subtask=2, epoch=2, times=100)

    with pytest.raises(WorkerLostError, match=r"member \d failed 3 time\(s\): "):
        losses(crew)
    with pytest.raises(WorkerLostError, match=r"member \d failed 3"):
        crew.snapshots()


@pytest.mark.slow
def test_a_workload_that_raises_at_once_is_not_tried_again(start):
    crew = start("raises", subtask=None, epoch=1, times=100)

    with pytest.raises(WorkerError, match=r"(?s)member \d failed 1 time.*ZeroDivision"):
        crew.iteration(1)


@pytest.mark.slow
def test_a_wrong_workload_fails_the_trial_at_once(start):
    with pytest.raises(WorkloadError, match="there are no rows"):
        start("start").iteration(1)


def test_a_subtask_goes_on_from_the_last_checkpoint(start, tmp_path):
    crew = start("dies", subtask=3, epoch=5)
    for number in (1, 2):
        crew.iteration(number)
    saved = crew.snapshots()[0][3].epoch

    assert losses(crew, first=3) == EXPECTED[2:]
    assert saved >= 2
    again = [epoch for epochs in trained(tmp_path) for subtask, epoch in epochs if subtask == 3]
    assert all(again.count(epoch) == 1 for epoch in range(1, saved + 1))
