"""TrialResources: what a trial reserves."""

import pytest

from tune_tf.errors import InvalidSettingsError
from tune_tf.resources import TrialResources

WRONG = [
    ({"cpus": 0}, "cpus: must be at least 1, not 0"),
    ({"cpus": 1.5}, "cpus: must be an integer, not 1.5"),
    ({"cpus": True}, "cpus: must be an integer, not True"),
    ({"gpus": -1}, "gpus: must be at least 0, not -1"),
    ({"gpus": 1.5}, "gpus: must be an integer if above 1, not 1.5"),
    ({"gpus": float("inf")}, "gpus: must be a finite number, not inf"),
    ({"gpus": float("nan")}, "gpus: must be a finite number, not nan"),
    ({"gpus": "1"}, "gpus: must be a number, not '1'"),
    ({"gpus": True}, "gpus: must be a number, not True"),
    ({"cpus": 0, "gpus": -1}, "2 errors"),
    ({"accelerator_type": ""}, "a type as Ray names it, like H100, not ''"),
    ({"accelerator_type": 100}, "accelerator_type: must be text, not 100"),
    ({"accelerator_type": "a:b"}, "like H100, not 'a:b'"),
    ({"custom": ["disk"]}, r"custom: must be a mapping .* not \['disk'\]"),
    ({"custom": {"GPU": 1}}, "custom.GPU: is a resource of Ray's own"),
    ({"custom": {"memory": 1}}, "custom.memory: is a resource of Ray's own"),
    ({"custom": {"accelerator_type:H100": 1}}, "names without ':' as keys"),
    ({"custom": {"disk": 0}}, "custom.disk: must be a whole number, or a fraction .* not 0"),
    ({"custom": {"disk": 1.5}}, "custom.disk: must be a whole number"),
    ({"custom": {"disk": "1"}}, "custom.disk: must be a number, not '1'"),
]


@pytest.mark.parametrize(("settings", "match"), WRONG)
def test_wrong_resources_are_refused(settings, match):
    with pytest.raises(InvalidSettingsError, match=match):
        TrialResources(**settings)


@pytest.mark.parametrize(
    ("resources", "bundle"),
    [
        pytest.param(TrialResources(), {"CPU": 1.0}, id="default"),
        pytest.param(TrialResources(4, 2), {"CPU": 4.0, "GPU": 2.0}, id="whole-cards"),
        pytest.param(TrialResources(1, 0.25), {"CPU": 1.0, "GPU": 0.25}, id="a-share"),
        pytest.param(
            TrialResources(1, 2, "H100", {"fast_disk": 1, "licence": 0.5}),
            {
                "CPU": 1.0,
                "GPU": 2.0,
                "accelerator_type:H100": 0.001,
                "fast_disk": 1.0,
                "licence": 0.5,
            },
            id="a-type",
        ),
    ],
)
def test_a_bundle_names_only_what_is_reserved(resources, bundle):
    assert resources.bundle == bundle
    assert TrialResources.of_bundle(bundle) == resources


def test_resources_have_a_text():
    resources = TrialResources(4, 2, "H100", {"disk": 1})
    assert str(resources) == "4 CPU, 2 GPU, of type H100, 1 disk"
