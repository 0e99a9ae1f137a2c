"""KerasTuner's hypermodels as workloads."""

import pickle
import sys

import pytest

pytest.importorskip("keras_tuner")

import cloudpickle
import keras
import keras_tuner
from hypermodels import DATA, Classifier, X, Y, space, workload_of
from keras import layers

from tune_tf.errors import InvalidSettingsError, WorkloadError
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
    workload._declared = tutorial._declared  # found once: it takes a second
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
        InvalidSettingsError, match=r"need keras-tuner, .*: pip install 'tune-tf\[keras-tuner\]'"
    ):
        from_hypermodel(Classifier(), DATA)


def test_a_pickled_workload_is_not_built_again_to_find_its_space():
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


def test_an_argument_that_fit_does_not_have_is_refused_at_once():
    with pytest.raises(WorkloadError, match=r"got an unexpected .*'max_trials'"):
        workload_of(Classifier().build, max_trials=3)
    with pytest.raises(WorkloadError, match=r"validation_split, which has no counterpart"):
        workload_of(Classifier().build, validation_split=0.2)


def of_rate(hp):
    model = keras.Sequential([keras.Input((8, 8, 1)), layers.Flatten()])
    for i in range(hp.Int("layers", 1, 3)):
        model.add(layers.Dense(hp.Int(f"units_{i}", 4, 8)))
    model.compile(keras.optimizers.SGD(hp.Float("rate", 0.1, 0.5)), "mse")
    return model


def test_what_a_space_lacks_keeps_its_default(caplog):
    workload = pickle.loads(cloudpickle.dumps(workload_of(of_rate)))
    model = workload.build_model({"rate": 0.15, "units_2": 7})

    assert [layer.units for layer in model.layers[1:]] == [4]
    assert float(model.optimizer.learning_rate) == pytest.approx(0.15)
    assert not caplog.records


def test_a_value_out_of_the_range_of_the_hypermodel_reaches_its_build():
    model = workload_of(of_rate).build_model({"layers": 2, "units_0": 5, "units_1": 9, "rate": 0.7})

    assert [layer.units for layer in model.layers[1:]] == [5, 9]
    assert float(model.optimizer.learning_rate) == pytest.approx(0.7)


def test_a_hypermodel_that_is_not_tunable_is_searched_by_a_given_space():
    class Fixed(keras_tuner.HyperModel):
        def build(self, hp):
            return hp.Int("a", 1, 3) + hp.Int("b", 1, 3)

    workload = pickle.loads(cloudpickle.dumps(workload_of(Fixed(tunable=False))))
    assert workload.build_model({"a": 8}) == 9


def test_a_hypermodel_finds_its_parameters_in_the_same_order_each_time(tutorial):
    assert list(space(Classifier())) == list(tutorial.space.parameters)
