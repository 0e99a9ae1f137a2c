"""From a workload to a class that Tune takes."""

import pytest

from tune_tf.errors import InvalidSettingsError, UnavailableResourcesError
from tune_tf.parallelism import Folds, Mirrored, MultiWorker
from tune_tf.resources import TrialResources
from tune_tf.trainables import trainable
from tune_tf.workload import Workload

pytestmark = pytest.mark.tf


class Nothing(Workload):
    """A workload that is never run."""

    def load_data(self, config):
        raise NotImplementedError

    def build_model(self, config):
        raise NotImplementedError


class Augmented(Nothing):
    def per_example(self, config, *, training):
        return lambda example, seed: example


@pytest.mark.parametrize(
    ("workload", "arguments", "message"),
    [
        pytest.param(
            object(), {}, r"workload must be a tune_tf\.Workload, not object", id="object"
        ),
        pytest.param(dict, {}, "not dict", id="another class"),
        pytest.param(Nothing, {"loop": "eager"}, "one of 'graph', 'fit', not 'eager'", id="loop"),
        pytest.param(
            Augmented, {"loop": "fit"}, r"not support Augmented\.per_example", id="fit by example"
        ),
        pytest.param(
            Nothing,
            {"loop": "fit", "parallelism": MultiWorker(2)},
            "on one device .* not kind 'multi_worker' with 2 workers",
            id="fit of workers",
        ),
        pytest.param(
            Nothing,
            {"loop": "fit", "parallelism": Folds(3)},
            "on one device .* not kind 'folds' with 1 device",
            id="fit of folds",
        ),
        pytest.param(
            Nothing,
            {"loop": "fit", "parallelism": Mirrored(2)},
            "on one device .* not kind 'mirrored' with 2 replicas",
            id="fit of replicas",
        ),
        pytest.param(
            Nothing,
            {"parallelism": MultiWorker(2), "resources": TrialResources(cpus=3)},
            "cpus is 3 but the trial has 2 workers",
            id="cpus of workers",
        ),
        pytest.param(
            Nothing,
            {"loop": "fit", "parallelism": Mirrored(micro_batches=2)},
            "whole batches: .* and micro_batches 2",
            id="fit in pieces",
        ),
        pytest.param(
            Nothing,
            {"parallelism": Mirrored(2), "resources": TrialResources(gpus=1)},
            "gpus is 1 but the trial has 2 replicas",
            id="gpus",
        ),
    ],
)
def test_arguments_that_do_not_fit_are_refused(workload, arguments, message):
    with pytest.raises(InvalidSettingsError, match=message):
        trainable(workload, **arguments)


@pytest.mark.parametrize("workload", [Nothing, Nothing()], ids=["class", "instance"])
def test_it_reserves_what_the_parallelism_needs(workload):
    made = trainable(workload, Mirrored(2))

    assert made.default_resource_request({}).bundles == [{"CPU": 2.0}]


def test_it_reserves_a_bundle_a_worker_beside_an_empty_one_of_its_own():
    made = trainable(Nothing, MultiWorker(2, placement="spread"), resources=TrialResources(cpus=4))
    request = made.default_resource_request({})

    assert request.bundles == [{"CPU": 2.0}, {"CPU": 2.0}]
    assert request.head_bundle_is_empty
    assert request.strategy == "SPREAD"


@pytest.mark.cluster
def test_more_than_any_node_has_fails_at_once(ray_cluster):
    with pytest.raises(
        UnavailableResourcesError, match=r"asks for 99 CPU, .* cluster have 4 CPU: it"
    ):
        trainable(Nothing, resources=TrialResources(cpus=99)).default_resource_request({})
