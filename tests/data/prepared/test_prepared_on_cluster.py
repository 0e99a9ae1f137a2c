"""Records turned into rows once for all processes of a job."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from preparing_functions import dear, image_of

from tune_tf.data import prepared
from tune_tf.data.prepare.prepare_actor import PreparationCounts
from tune_tf.errors import WorkloadError

pytestmark = pytest.mark.usefixtures("ray_cluster")

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("made", "is_of_many"),
    [
        pytest.param(lambda fn: fn, False, id="here"),
        pytest.param(
            lambda fn: dear(fn, 70),
            True,
            id="a pool for what would take long",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_rows_are_those_of_a_plain_loop_in_its_order(made, is_of_many):
    found = prepared([*range(70, 40, -1)], made(image_of()), version="order")
    rows = [image_of()(number) for number in range(70, 40, -1)]
    np.testing.assert_array_equal(found.rows["image"], np.stack([row["image"] for row in rows]))
    np.testing.assert_array_equal(found.rows["label"], [row["label"] for row in rows])
    assert found.rows["image"].dtype == np.uint8
    assert found.kept.tolist() == [*range(30)]
    assert (len(set(found.rows["pid"])) > 1) == is_of_many


def test_rows_are_views_of_the_one_copy_in_the_object_store():
    found = prepared([*range(70, 40, -1)], image_of(), version="order")
    assert not found.rows["image"].flags.owndata
    assert not found.rows["image"].flags.writeable


@pytest.mark.slow
def test_the_first_bad_record_is_named_with_its_cause():
    image = image_of()
    with pytest.raises(WorkloadError, match=r"record 77 \(77\): KeyError: 'no picture'; .* skip"):
        prepared(range(200), dear(lambda number: image(77 if number > 77 else number), 0))


def test_bad_records_are_left_out_on_request(caplog):
    found = prepared(range(70, 80), image_of(), on_bad_record="skip")
    assert found.kept.tolist() == [0, 1, 2, 3, 4, 5, 6, 8, 9]
    assert found.rows["label"].tolist() == [0, 1, 2, 3, 4, 5, 6, 8, 9]
    assert [bad.record for bad in found.skipped] == ["77"]
    assert len(caplog.messages) == 1


def test_all_who_ask_for_the_same_at_once_share_one_run(askers, counted):
    import ray

    found = ray.get([asker.ask.remote(range(50), image_of(), version="shared") for asker in askers])
    assert len({pid for _, pid in found}) == len(askers)
    for rows, _ in found:
        np.testing.assert_array_equal(rows["label"], np.arange(50) % 10)
    assert counted() == PreparationCounts(num_asked=4, num_run=1)


@pytest.mark.slow
def test_data_are_prepared_while_all_cpus_are_reserved(counted):
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    group = ray.util.placement_group([{"CPU": 1}] * 4)
    ray.get(group.ready())
    try:
        assert ray.available_resources().get("CPU", 0) == 0
        inside = PlacementGroupSchedulingStrategy(group, placement_group_capture_child_tasks=True)

        @ray.remote(num_cpus=1, scheduling_strategy=inside)
        def ask(fn):
            return prepared(range(20), fn, version="reserved").rows["label"]

        images = dear(image_of(), 0)
        waiting = [ask.remote(images) for _ in range(4)]
        for labels in ray.get(waiting, timeout=300):
            np.testing.assert_array_equal(labels, np.arange(20) % 10)
        assert counted().num_run == 1
    finally:
        ray.util.remove_placement_group(group)


def test_the_users_own_settings_of_ray_data_stay():
    import ray.data

    context = ray.data.DataContext.get_current()
    before = context.enable_progress_bars, context.execution_options.preserve_order
    prepared(range(4), image_of(), version="settings")
    assert (context.enable_progress_bars, context.execution_options.preserve_order) == before


def test_what_cannot_be_sent_to_other_processes_is_told():
    lock = threading.Lock()
    with pytest.raises(WorkloadError, match=r"the function cannot be sent .*pickle.*lock"):
        prepared([1], lambda number: (number, lock)[0])


def told_by(drill):
    """Return what a drill in a process of its own printed."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name(drill))],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_processes_on_two_nodes_share_one_run():
    told = told_by("two_nodes_drill.py")
    assert told["num_nodes_of_askers"] == 2
    assert told["num_nodes_of_workers"] == 2
    assert told["free_cpus"] == 0
    assert told["counts"] == [8, 1]
    assert told["all_equal"]


@pytest.mark.slow
def test_each_node_holds_rows_larger_than_its_store_once_and_outside_of_memory():
    told = told_by("rows_beyond_memory_drill.py")
    assert told["num_run"] == 1
    assert told["copies"] == pytest.approx(3, abs=0.1)
    assert 0 < told["growth"] < told["rows"] / 3
    assert told["losses"] == told["losses_in_memory"]
    assert told["sums"] == told["sums"][:1] * 4  # the last ones on a new node, after a loss
