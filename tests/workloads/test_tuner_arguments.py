"""Arguments of KerasTuner's tuners, compared with KerasTuner's own tuners."""

import inspect
import pickle

import cloudpickle
import pytest

pytest.importorskip("keras_tuner")

import keras
import keras_tuner
from hypermodels import workload_of

from tune_tf import Choice, Constant, Float, Int
from tune_tf.errors import InvalidSettingsError, WorkloadError
from tune_tf.workloads.keras_tuner.hypermodel import from_hypermodel

pytestmark = pytest.mark.tf


def build(hp):
    model = keras.Sequential([keras.Input((8, 8, 1)), keras.layers.Flatten()])
    for i in range(hp.Int("layers", 1, 3)):
        model.add(keras.layers.Dense(hp.Int(f"units_{i}", 4, 8)))
    model.add(keras.layers.Dense(1))
    if hp.Boolean("compile", default=True):
        model.compile(
            keras.optimizers.SGD(hp.Float("rate", 0.1, 0.5)),
            keras.losses.LogCosh(),
            metrics=["mape"],
            weighted_metrics=["mse"],
        )
    return model


def entries(**fixed):
    hp = keras_tuner.HyperParameters()
    for name, value in fixed.items():
        hp.Fixed(name, value)
    return hp


def kerastuners(tmp_path, hypermodel=build, **arguments):
    """Return KerasTuner's own tuner."""
    return keras_tuner.RandomSearch(
        hypermodel, objective="val_loss", directory=tmp_path, **arguments
    )


def test_given_hyperparameters_replace_those_of_the_hypermodel(tmp_path):
    hp = entries(rate=0.25, compile=True)
    hp.Int("layers", 2, 2)
    workload = workload_of(build, hyperparameters=hp)
    assert workload.space.parameters["rate"] == Constant(0.25)
    assert workload.space.parameters["layers"] == Int(2, 2)
    theirs = kerastuners(tmp_path, hyperparameters=hp).oracle.get_space()
    assert {entry.name for entry in theirs.space} == set(workload.space.parameters)
    model = workload.build_model({"layers": 2, "units_0": 5, "units_1": 6, "rate": 0.25})
    assert float(model.optimizer.learning_rate) == 0.25
    assert [layer.units for layer in model.layers[1:]] == [5, 6, 1]


def test_without_new_entries_all_others_keep_their_defaults(tmp_path, caplog):
    hp = keras_tuner.HyperParameters()
    hp.Float("rate", 0.01, 0.02)
    hp.Choice("units_2", [5, 7])
    arguments = {"hyperparameters": hp, "tune_new_entries": False}
    workload = workload_of(build, **arguments)
    assert dict(workload.space.parameters) == {"rate": Float(0.01, 0.02), "units_2": Choice([5, 7])}
    theirs = kerastuners(tmp_path, **arguments).oracle.get_space()
    assert {entry.name for entry in theirs.space} == set(workload.space.parameters)
    workload = pickle.loads(cloudpickle.dumps(workload))
    model = workload.build_model({"rate": 0.015, "units_2": 7})
    assert [layer.units for layer in model.layers[1:]] == [4, 1]
    assert float(model.optimizer.learning_rate) == pytest.approx(0.015)
    assert not caplog.records


def test_a_hypermodel_that_is_not_tunable_is_searched_by_given_hyperparameters():
    class Fixed(keras_tuner.HyperModel):
        def build(self, hp):
            return hp.Int("a", 1, 3) + hp.Int("b", 1, 3)

    hp = keras_tuner.HyperParameters()
    hp.Int("a", 5, 9)
    workload = workload_of(Fixed(tunable=False), hyperparameters=hp)
    assert dict(workload.space.parameters) == {"a": Int(5, 9)}
    assert workload.build_model({"a": 8}) == 9


OVERRIDES = {  # made late: an optimizer initializes TensorFlow
    "optimizer": lambda: {"optimizer": keras.optimizers.Adam(0.125)},
    "loss": lambda: {"loss": "mse"},
    "metrics": lambda: {"metrics": [keras.metrics.MeanAbsoluteError(name="mine")]},
    "all": lambda: {"optimizer": "rmsprop", "loss": keras.losses.Huber(), "metrics": ["msle"]},
}


@pytest.mark.parametrize("make", OVERRIDES.values(), ids=OVERRIDES)
def test_arguments_of_compile_replace_those_of_build(make, tmp_path):
    arguments = make()
    workload = workload_of(build, **arguments)
    workload = pickle.loads(cloudpickle.dumps(workload))
    config = {"layers": 1, "units_0": 4, "rate": 0.5, "compile": True}
    mine, other = workload.build_model(config), workload.build_model(config)
    hp = keras_tuner.HyperParameters()
    hp.values = dict(config)
    theirs = kerastuners(tmp_path, **arguments)._build_hypermodel(hp)
    assert type(mine.optimizer) is type(theirs.optimizer)
    assert float(mine.optimizer.learning_rate) == float(theirs.optimizer.learning_rate)
    assert mine.optimizer is not other.optimizer
    assert _names(mine.loss) == _names(theirs.loss)
    x, y = keras.ops.ones((2, 8, 8, 1)), keras.ops.zeros((2, 1))
    reported = mine.evaluate(x, y, return_dict=True, verbose=0)
    expected = set(theirs.evaluate(x, y, return_dict=True, verbose=0))
    assert expected - {"compile_metrics"} <= set(reported)
    assert "mse" in reported  # weighted_metrics, which KerasTuner loses


def _names(loss):
    return getattr(loss, "name", loss)


def test_an_override_completes_a_model_that_is_not_compiled():
    hp = entries(compile=False)
    workload = workload_of(build, hyperparameters=hp, optimizer="adam", loss="mse")
    model = workload.build_model({"compile": False, "layers": 1, "units_0": 4})
    assert (model.loss, type(model.optimizer)) == ("mse", keras.optimizers.Adam)
    with pytest.raises(WorkloadError, match=r"not compile its model: .* give loss to from_hyperm"):
        workload_of(build, hyperparameters=hp, optimizer="adam").space  # noqa: B018
    with pytest.raises(WorkloadError, match="compile in build, or give loss and optimizer"):
        workload_of(build, hyperparameters=hp).space  # noqa: B018


def test_a_compile_that_cannot_be_repeated_is_refused_with_what_to_do():
    def with_own_metric(hp):
        def mine(y, prediction):
            return y

        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(hp.Int("a", 1, 2))])
        model.compile(loss="mse", metrics=[mine])
        return model

    with pytest.raises(WorkloadError, match=r"compile\(.*metrics.*give metrics=\[\.\.\.\] as well"):
        workload_of(with_own_metric, loss="mae").space  # noqa: B018
    assert workload_of(with_own_metric, loss="mae", metrics=["mse"]).space


TUNERS = (
    keras_tuner.Tuner,
    keras_tuner.RandomSearch,
    keras_tuner.Hyperband,
    keras_tuner.BayesianOptimization,
    keras_tuner.GridSearch,
)
SIGNATURES = [inspect.signature(tuner.__init__).parameters for tuner in TUNERS]
OURS = {*inspect.signature(from_hypermodel).parameters, "self", "kwargs"}


@pytest.mark.parametrize("name", sorted({name for each in SIGNATURES for name in each} - OURS))
def test_every_other_argument_of_a_tuner_is_refused_with_what_to_write(name):
    with pytest.raises(InvalidSettingsError, match=rf"{name} of KerasTuner's Tuner (is|has no)"):
        workload_of(build, **{name: 1})


def test_an_argument_that_fit_does_not_have_is_refused_at_once():
    with pytest.raises(WorkloadError, match=r"keras.Model.fit got an unexpected .*'batchsize'"):
        workload_of(build, batchsize=3)
    with pytest.raises(WorkloadError, match=r"validation_split=0\.2 .* no counterpart"):
        workload_of(build, validation_split=0.2)


def test_nothing_to_search_is_refused():
    with pytest.raises(InvalidSettingsError, match="tune_new_entries=False needs hyperparameters"):
        workload_of(build, tune_new_entries=False)
