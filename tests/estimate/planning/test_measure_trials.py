"""What goes wrong while configs are trained, as it is told."""

import pytest
import ray

from tune_tf.errors import UnavailableResourcesError, WorkloadError
from tune_tf.estimate.planning import measure_trials


class ResourceExhaustedError(Exception):
    """TensorFlow's has this name."""


def raised_there(cause):
    return ray.exceptions.RayTaskError("begin", "a traceback", cause)


CASES = {
    "out of memory": (raised_there(MemoryError("no room")), UnavailableResourcesError, "no room"),
    "out of GPU memory": (
        raised_there(ResourceExhaustedError("OOM when allocating")),
        UnavailableResourcesError,
        "OOM when allocating",
    ),
    "killed": (ray.exceptions.RayActorError(), UnavailableResourcesError, "max_concurrent_trials"),
    "wrong data": (raised_there(WorkloadError("no rows")), WorkloadError, "no rows"),
    "own code": (raised_there(KeyError("depth")), WorkloadError, "KeyError: 'depth'"),
}


@pytest.mark.parametrize(("error", "kind", "told"), CASES.values(), ids=CASES.keys())
def test_a_config_that_cannot_be_trained_is_named(monkeypatch, error, kind, told):
    def get(reference):
        raise error

    monkeypatch.setattr(measure_trials.ray, "get", get)
    with pytest.raises(kind, match="width=64") as caught:
        measure_trials._answers(["reference"], [{"width": 64}])
    assert told in str(caught.value)


def test_no_more_processes_are_started_than_there_is_memory_for():
    assert measure_trials.num_affordable_slots(8, available_bytes=4.5e9) == 4
    assert measure_trials.num_affordable_slots(2, available_bytes=4.5e9) == 2
    assert measure_trials.num_affordable_slots(8, available_bytes=1e8) == 1
