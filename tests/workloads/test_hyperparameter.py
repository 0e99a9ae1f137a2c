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


@pytest.mark.parametrize(
    ("hp", "match"),
    [
        pytest.param(
            kinds.HyperParameter("odd"), "^odd: HyperParameter .* no counterpart", id="class"
        ),
        pytest.param(
            kinds.Float("odd", 0.1, 1, sampling="reverse_log"),
            "^odd: Float with sampling='reverse_log' has no counterpart: use hp.Int",
            id="reverse_log",
        ),
    ],
)
def test_what_has_no_counterpart_is_refused_by_name(hp, match):
    with pytest.raises(InvalidSettingsError, match=match):
        _parameter(hp)


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
