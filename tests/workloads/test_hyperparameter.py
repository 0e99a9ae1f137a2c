"""One hyperparameter of KerasTuner and its counterpart in a search space."""

import pytest

pytest.importorskip("keras_tuner")

import keras_tuner
from hypermodels import space, workload_of
from keras_tuner.engine import hyperparameters as kinds

from tune_tf import Choice, Constant, Float, Int
from tune_tf.errors import InvalidSettingsError
from tune_tf.workloads.keras_tuner.hypermodel_space import _parameter


@pytest.mark.parametrize(
    ("declare", "parameter"),
    [
        pytest.param(lambda hp: hp.Int("a", 1, 4), Int(1, 4), id="int"),
        pytest.param(lambda hp: hp.Int("a", 6, 13, step=3), Int(6, 12, step=3), id="stepped-int"),
        pytest.param(
            lambda hp: hp.Int("a", 2, 33, step=2, sampling="log"),
            Choice([2, 4, 8, 16, 32]),
            id="int-powers",
        ),
        pytest.param(
            lambda hp: hp.Int("a", 1, 8, step=2, sampling="reverse_log"),
            Choice([8, 7, 5, 1]),
            id="int-reverse-powers",
        ),
        pytest.param(
            lambda hp: hp.Float("a", 0, 1, step=0.2), Float(0, 1, step=0.2), id="stepped-float"
        ),
        pytest.param(
            lambda hp: hp.Float("a", 1e-4, 1, sampling="log"), Float(1e-4, 1, log=True), id="log"
        ),
        pytest.param(
            lambda hp: hp.Float("a", 0.5, 8, step=4, sampling="log"),
            Choice([0.5, 2.0, 8.0]),
            id="float-powers",
        ),
        pytest.param(lambda hp: hp.Choice("a", ["x", "y"]), Choice(["x", "y"]), id="choice"),
        pytest.param(lambda hp: hp.Boolean("a"), Choice([True, False]), id="boolean"),
        pytest.param(lambda hp: hp.Fixed("a", 0.5), Constant(0.5), id="fixed"),
    ],
)
def test_each_kind_has_its_counterpart(declare, parameter):
    assert space(declare) == {"a": parameter}


def test_reverse_log_is_searched_evenly_and_said_so():
    with pytest.warns(
        UserWarning, match="'a': sampling='reverse_log' is searched uniformly from 0.1"
    ):
        found = space(lambda hp: hp.Float("a", 0.1, 1, sampling="reverse_log"))
    assert found == {"a": Float(0.1, 1)}


def test_a_hyperparameter_of_another_class_is_refused_by_name():
    with pytest.raises(InvalidSettingsError, match=r"^odd: .* class HyperParameter have no count"):
        _parameter(kinds.HyperParameter("odd"))


@pytest.mark.parametrize(
    "declare",
    [
        pytest.param(lambda hp: hp.Int("a", 1, 4), id="int"),
        pytest.param(lambda hp: hp.Int("a", 1, 9, sampling="log"), id="log-int"),
        pytest.param(lambda hp: hp.Float("a", 0.1, 0.7, step=0.2), id="stepped-float"),
        pytest.param(lambda hp: hp.Float("a", 1e-4, 1e-1, sampling="log"), id="log-float"),
        pytest.param(lambda hp: hp.Int("a", 2, 32, step=2, sampling="log"), id="int-powers"),
    ],
)
def test_both_ends_reach_the_build_as_keras_tuner_has_them(declare):
    workload = workload_of(declare)
    parameter = workload.space.parameters["a"]
    given = vars(parameter)
    ends = given["options"] if isinstance(parameter, Choice) else (given["low"], given["high"])

    hps = keras_tuner.HyperParameters()
    declare(hps)
    (hp,) = hps.space
    assert (ends[0], ends[-1]) == (hp.min_value, hp.max_value)
    assert [workload.build_model({"a": end}) for end in ends] == list(ends)
