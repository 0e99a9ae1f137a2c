"""TrialResources: what a trial reserves."""

import pytest

from tune_tf.errors import InvalidSettingsError
from tune_tf.resources import TrialResources


@pytest.mark.parametrize(
    ("cpus", "gpus", "match"),
    [
        pytest.param(0, 0, "cpus must be an integer of at least 1, not 0", id="no-cpu"),
        pytest.param(1.5, 0, "cpus must be an integer of at least 1, not 1.5", id="half-cpu"),
        pytest.param(True, 0, "cpus must be an integer of at least 1, not True", id="bool-cpu"),
        pytest.param(1, -1, "gpus must be 0 or more, not -1", id="negative-gpus"),
        pytest.param(1, 1.5, "gpus above 1 must be an integer, not 1.5", id="card-and-a-half"),
        pytest.param(1, float("inf"), "gpus must be 0 or more, not inf", id="infinite"),
        pytest.param(1, float("nan"), "gpus must be 0 or more, not nan", id="nan"),
        pytest.param(1, "1", "gpus must be a number, not '1'", id="text"),
        pytest.param(1, True, "gpus must be a number, not True", id="bool-gpu"),
        pytest.param(0, -1, "2 errors", id="both"),
    ],
)
def test_bad_resources_are_refused(cpus, gpus, match):
    with pytest.raises(InvalidSettingsError, match=match):
        TrialResources(cpus, gpus)


@pytest.mark.parametrize(
    ("resources", "bundle"),
    [
        pytest.param(TrialResources(), {"CPU": 1.0}, id="default"),
        pytest.param(TrialResources(4, 2), {"CPU": 4.0, "GPU": 2.0}, id="whole-cards"),
        pytest.param(TrialResources(1, 0.25), {"CPU": 1.0, "GPU": 0.25}, id="a-share"),
    ],
)
def test_a_bundle_names_only_what_is_reserved(resources, bundle):
    assert resources.bundle == bundle
