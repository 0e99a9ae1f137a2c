"""KerasTuner's hypermodels as workloads."""

import pickle
import sys

import pytest

pytest.importorskip("keras_tuner")

import cloudpickle
from hypermodels import DATA, Classifier, X, Y, space, workload_of
from keras import layers

from tune_tf.errors import InvalidSettingsError
from tune_tf.workloads.keras_tuner.hypermodel import from_hypermodel

pytestmark = pytest.mark.tf


@pytest.mark.parametrize(
    "hypermodel",
    [
        pytest.param(Classifier(), id="instance"),
        pytest.param(Classifier().build, id="function"),
    ],
)
def test_a_hypermodel_comes_in_two_forms(hypermodel, tutorial):
    workload = workload_of(hypermodel)
    workload._probed_space = tutorial._probed_space  # as if it were probed, which takes a second
    config = {"model_type": "mlp", "num_layers": 2, "units_0": 8, "units_1": 24}

    model = workload.build_model(config)
    widths = [layer.units for layer in model.layers if isinstance(layer, layers.Dense)]
    assert widths == [8, 24, 10]


@pytest.mark.parametrize(
    ("hypermodel", "data", "match"),
    [
        pytest.param(3, DATA, "must be a keras_tuner.HyperModel or a function .* not 3", id="3"),
        pytest.param(Classifier(), (X, Y), r"data must be tune_tf.Data\(.* not tuple", id="data"),
        pytest.param(Classifier, DATA, "a keras_tuner.HyperModel or .* not <class", id="class"),
    ],
)
def test_what_is_no_hypermodel_is_refused(hypermodel, data, match):
    with pytest.raises(InvalidSettingsError, match=match):
        from_hypermodel(hypermodel, data)


def test_without_keras_tuner_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "keras_tuner", None)
    with pytest.raises(
        InvalidSettingsError, match=r"need KerasTuner \(.*\): pip install 'tune-tf\[keras-tuner\]'"
    ):
        from_hypermodel(Classifier(), DATA)


def test_a_pickled_workload_is_not_probed_again():
    calls = []

    def build(hp):
        calls.append(1)
        return hp.Int("a", 1, 3)

    workload = workload_of(build, data=lambda config: DATA)
    workload.load_data({})
    copy = pickle.loads(cloudpickle.dumps(workload))
    there = copy._hypermodel.build.__closure__[0].cell_contents
    there.clear()

    assert copy.space == workload.space
    assert copy.build_model({"a": 3}) == 3
    assert copy.load_data({}).train[1].tolist() == Y.tolist()
    assert len(there) == 1


def test_a_hypermodel_finds_its_parameters_in_the_same_order_each_time(tutorial):
    assert list(space(Classifier())) == list(tutorial.space.parameters)
