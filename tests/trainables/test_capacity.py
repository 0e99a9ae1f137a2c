"""How many trials a cluster has room for, and how many workers of one."""

import pytest
import ray

from tune_tf.errors import UnavailableResourcesError
from tune_tf.parallelism import Mirrored, MultiWorker
from tune_tf.resources import TrialResources
from tune_tf.trainables.capacity import capacity_by_node, check_cluster, num_trials

pytestmark = pytest.mark.tf

APART = MultiWorker(2, placement="strict_spread")


@pytest.mark.parametrize(
    ("parallelism", "room", "trials"),
    [
        pytest.param(Mirrored(), [3, 0, 2], 5, id="one process a trial"),
        pytest.param(MultiWorker(2), [3, 2], 2, id="packed"),
        pytest.param(MultiWorker(2, placement="spread"), [3], 1, id="spread where possible"),
        pytest.param(APART, [3, 2], 2, id="apart"),
        pytest.param(APART, [5, 1], 1, id="apart, few on one node"),
        pytest.param(APART, [2, 2, 2], 3, id="apart, in a ring"),
        pytest.param(APART, [9], 0, id="apart, one node"),
        pytest.param(APART, [], 0, id="no node"),
    ],
)
def test_trials_that_fit(parallelism, room, trials):
    assert num_trials(room, parallelism) == trials


@pytest.mark.parametrize(
    ("share", "node", "processes"),
    [
        (TrialResources(1, 0.2), {"CPU": 9, "GPU": 1}, 5),  # 1 // 0.2 is 4
        (TrialResources(1, 0.1), {"CPU": 9, "GPU": 0.3}, 0),  # less than a card
        (TrialResources(1, 0.4), {"CPU": 9, "GPU": 2}, 4),  # two on each card
        (TrialResources(1, 0.7), {"CPU": 9, "GPU": 3}, 3),
        (TrialResources(1, 2), {"CPU": 9, "GPU": 5}, 2),
        (TrialResources(2), {"CPU": 9}, 4),
        (TrialResources(1, 1), {"CPU": 9}, 0),
    ],
)
def test_processes_that_fit_on_a_node(share, node, processes, monkeypatch):
    monkeypatch.setattr(ray, "nodes", lambda: [{"Alive": True, "Resources": node}])

    assert capacity_by_node(share) == [processes]


NODES = [
    {"CPU": 9.0, "GPU": 2.0, "accelerator_type:A100": 1.0},
    {"CPU": 9.0, "GPU": 4.0, "accelerator_type:H100": 1.0, "fast_disk": 2.0, "node:10.0.0.2": 1.0},
    {"CPU": 9.0, "memory": 1e9},
]


@pytest.fixture
def nodes(monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(
        ray, "nodes", lambda: [{"Alive": True, "Resources": node} for node in NODES]
    )


@pytest.mark.parametrize(
    ("resources", "room"),
    [
        (TrialResources(1, 1, "H100"), [0, 4, 0]),
        (TrialResources(1, 1, custom={"fast_disk": 1}), [0, 2, 0]),
        (TrialResources(1, custom={"fast_disk": 0.5}), [0, 4, 0]),
    ],
)
def test_a_type_of_gpu_and_custom_resources_are_room_on_the_nodes_that_have_them(
    nodes, resources, room
):
    assert capacity_by_node(resources) == room
    check_cluster(resources)


@pytest.mark.parametrize(
    ("resources", "parallelism", "message"),
    [
        pytest.param(
            TrialResources(1, 1, "H10O"),
            Mirrored(),
            r"for 1 CPU, 1 GPU, of type H10O, .* of type A100.* of type H100",
            id="type",
        ),
        pytest.param(
            TrialResources(1, custom={"slow_disk": 1}),
            Mirrored(),
            r"for 1 CPU, 1 slow_disk, .* 2 fast_disk",
            id="custom",
        ),
        pytest.param(
            TrialResources(1, 4, "A100"),
            Mirrored(4),
            r"asks for 1 CPU, 4 GPU, of type A100, .* have 9 CPU, 2 GPU, of type A100; ",
            id="too many of a type",
        ),
        pytest.param(
            TrialResources(8),
            MultiWorker(4, placement="strict_spread"),
            r"asks for 4 x 2 CPU, placement 'strict_spread', .* have 9 CPU",
            id="more workers than nodes",
        ),
        pytest.param(
            TrialResources(20), MultiWorker(2), r"asks for 2 x 10 CPU, placement 'pack'", id="room"
        ),
    ],
)
def test_what_no_node_has_room_for_is_refused_at_once(nodes, resources, parallelism, message):
    with pytest.raises(UnavailableResourcesError, match=message):
        check_cluster(resources, parallelism)
