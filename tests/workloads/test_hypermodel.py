"""KerasTuner's hypermodels as workloads."""

import pickle
import sys

import numpy as np
import pytest

pytest.importorskip("keras_tuner")

import cloudpickle
import keras
import keras_tuner
from hypermodels import Classifier
from keras import layers
from keras_tuner.engine import hyperparameters as kinds

from tune_tf import Choice, Constant, Data, Float, Int
from tune_tf.data.loads import RecordingConfig
from tune_tf.errors import InvalidSettingsError, WorkloadError
from tune_tf.space import flat
from tune_tf.workloads.hypermodel import from_hypermodel
from tune_tf.workloads.hypermodel_probing import probed
from tune_tf.workloads.hyperparameter import Hyperparameter

pytestmark = pytest.mark.tf

X = np.linspace(-1, 1, 6 * 64, dtype="float32").reshape(6, 8, 8, 1)
Y = np.arange(6) % 3
DATA = Data(train=(X, Y), validation=(X[:2], Y[:2]), test=(X[:1], Y[:1]))


def taken_over(build, data=DATA, **arguments):
    return from_hypermodel(build, data, **arguments)


@pytest.fixture(scope="module")
def tutorial():
    """The tutorial's hypermodel taken over, probed once."""
    workload = from_hypermodel(Classifier(), DATA)
    assert workload.space
    return workload


def space(build, **arguments):
    return dict(taken_over(build, **arguments).space.parameters)


@pytest.mark.parametrize(
    ("declare", "parameter"),
    [
        pytest.param(lambda hp: hp.Int("a", 1, 4), Int(1, 4), id="int"),
        pytest.param(lambda hp: hp.Int("a", 3, 3), Int(3, 3), id="one-int"),
        pytest.param(lambda hp: hp.Int("a", 6, 12, step=3), Int(6, 12, step=3), id="stepped-int"),
        pytest.param(lambda hp: hp.Int("a", 6, 13, step=3), Int(6, 12, step=3), id="int-short"),
        pytest.param(lambda hp: hp.Int("a", 1, 4, step=9), Int(1, 1), id="int-step-too-long"),
        pytest.param(
            lambda hp: hp.Int("a", 1, 9, sampling="log"), Int(1, 9, log=True), id="log-int"
        ),
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
        pytest.param(lambda hp: hp.Float("a", 0, 1), Float(0, 1), id="float"),
        pytest.param(
            lambda hp: hp.Float("a", 0, 1, step=0.2), Float(0, 1, step=0.2), id="stepped-float"
        ),
        pytest.param(
            lambda hp: hp.Float("a", 0, 0.9, step=0.2), Float(0, 0.8, step=0.2), id="float-short"
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
        pytest.param(lambda hp: hp.Choice("a", [3, 1, 3]), Choice([3, 1]), id="repeated-option"),
        pytest.param(
            lambda hp: hp.Choice("a", [1, 2], ordered=False), Choice([1, 2]), id="unordered"
        ),
        pytest.param(lambda hp: hp.Boolean("a"), Choice([True, False]), id="boolean"),
        pytest.param(lambda hp: hp.Fixed("a", 0.5), Constant(0.5), id="fixed"),
    ],
)
def test_each_kind_has_its_counterpart(declare, parameter):
    assert space(declare) == {"a": parameter}


def test_reverse_log_is_searched_evenly_and_said_so():
    with pytest.warns(UserWarning, match="'a': sampling='reverse_log' is searched evenly from 0.1"):
        found = space(lambda hp: hp.Float("a", 0.1, 1, sampling="reverse_log"))
    assert found == {"a": Float(0.1, 1)}


def test_a_hyperparameter_of_another_class_is_refused_by_name():
    with pytest.raises(InvalidSettingsError, match=r"^odd: .* class HyperParameter have no count"):
        Hyperparameter.of(kinds.HyperParameter("odd"), {})


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
    workload = taken_over(declare)
    parameter = workload.space.parameters["a"]
    given = vars(parameter)
    ends = given["options"] if isinstance(parameter, Choice) else (given["low"], given["high"])

    hps = keras_tuner.HyperParameters()
    declare(hps)
    (hp,) = hps.space
    assert (ends[0], ends[-1]) == (hp.min_value, hp.max_value)
    assert [workload.build_model({"a": end}) for end in ends] == list(ends)


def nested_scopes(hp):
    hp.Choice("model", ["mlp", "cnn", "none"])
    with hp.conditional_scope("model", ["mlp", "cnn"]):
        hp.Choice("norm", ["batch", "layer"])
        with hp.conditional_scope("norm", "batch"):
            hp.Float("eps", 0, 1)


def name_scopes(hp):
    with hp.name_scope("head"):
        hp.Choice("kind", ["a", "b"])
        with hp.name_scope("deep"):
            hp.Int("int", 1, 2)
        hp.Int("units", 1, 2, parent_name="kind", parent_values="b")


def odd_names(hp):
    hp.Int("learning.rate", 1, 2)
    hp.Int("learning_rate", 1, 3)
    hp.Int("a", 1, 2)
    hp.Int("a/b", 1, 2)
    hp.Int("a//choice", 1, 2)
    hp.Int("größe der schicht", 1, 2)
    hp.Int(7, 1, 2)


def one_name_in_two_scopes(hp):
    hp.Choice("model", ["mlp", "cnn", "rnn"])
    for model, high in {"mlp": 4, "cnn": 8, "rnn": 4}.items():
        with hp.conditional_scope("model", [model]):
            hp.Int("units", 1, high)


def within_and_without(hp):
    hp.Choice("model", ["mlp", "cnn"])
    with hp.conditional_scope("model", ["mlp"]):
        hp.Int("units", 1, 4)
    hp.Int("units", 1, 4)


def loops(hp):
    for b in range(hp.Int("blocks", 0, 2)):
        for i in range(hp.Int(f"layers_{b}", 1, 2)):
            hp.Int(f"units_{b}_{i}", 4, 8)


def branches(hp):
    if hp.Boolean("deep") and hp.Choice("kind", ["a", "b", "c"]) in "bc":
        hp.Float("rate", 0, 1)


def thresholds(hp):
    if hp.Float("dropout", 0, 1) > 0.5:
        hp.Int("patience", 1, 2)
    if hp.Int("units", 1, 1000) > 500:
        hp.Int("bottleneck", 1, 2)


def never(hp):
    hp.Choice("model", ["mlp"])
    with hp.conditional_scope("model", ["cnn"]):
        hp.Int("filters", 1, 2)


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        pytest.param(
            nested_scopes,
            {
                "model": Choice(["mlp", "cnn", "none"]),
                "norm": Choice(["batch", "layer"], when={"model": ["mlp", "cnn"]}),
                "eps": Float(0, 1, when={"model": ["mlp", "cnn"], "norm": "batch"}),
            },
            id="nested-scopes",
        ),
        pytest.param(
            name_scopes,
            {
                "head/kind": Choice(["a", "b"]),
                "head/deep/int_": Int(1, 2),
                "head/units": Int(1, 2, when={"head/kind": "b"}),
            },
            id="name-scopes",
        ),
        pytest.param(
            odd_names,
            {
                "learning_rate": Int(1, 2),
                "learning_rate-2": Int(1, 3),
                "a-2": Int(1, 2),
                "a/b": Int(1, 2),
                "a/_/choice_": Int(1, 2),
                "größe der schicht": Int(1, 2),
                "7": Int(1, 2),
            },
            id="odd-names",
        ),
        pytest.param(
            one_name_in_two_scopes,
            {
                "model": Choice(["mlp", "cnn", "rnn"]),
                "units": Int(1, 4, when={"model": ["mlp", "rnn"]}),
                "units-2": Int(1, 8, when={"model": "cnn"}),
            },
            id="one-name-in-two-scopes",
        ),
        pytest.param(
            within_and_without,
            {"model": Choice(["mlp", "cnn"]), "units": Int(1, 4)},
            id="within-and-without-a-scope",
        ),
        pytest.param(
            loops,
            {
                "blocks": Int(0, 2),
                "layers_0": Int(1, 2, when={"blocks": [1, 2]}),
                "units_0_0": Int(4, 8, when={"blocks": [1, 2]}),
                "units_0_1": Int(4, 8, when={"blocks": [1, 2], "layers_0": 2}),
                "layers_1": Int(1, 2, when={"blocks": 2}),
                "units_1_0": Int(4, 8, when={"blocks": 2}),
                "units_1_1": Int(4, 8, when={"blocks": 2, "layers_1": 2}),
            },
            id="loops",
        ),
        pytest.param(
            branches,
            {
                "deep": Choice([True, False]),
                "kind": Choice(["a", "b", "c"], when={"deep": True}),
                "rate": Float(0, 1, when={"deep": True, "kind": ["b", "c"]}),
            },
            id="python-branches",
        ),
        pytest.param(
            thresholds,
            {
                "dropout": Float(0, 1),
                "units": Int(1, 1000),
                "patience": Int(1, 2),
                "bottleneck": Int(1, 2),
            },
            id="thresholds-are-no-conditions",
        ),
        pytest.param(never, {"model": Choice(["mlp"])}, id="a-scope-that-never-opens"),
    ],
)
def test_scopes_and_loops_become_conditions(build, expected):
    assert space(build) == expected


def test_parents_stand_within_the_scopes_of_their_children():
    with pytest.raises(WorkloadError, match="defaults of all hyperparameters raised ValueError"):
        space(lambda hp: hp.Int("b", 1, 2, parent_name="c", parent_values=1))


def test_a_config_of_the_tutorial_holds_exactly_what_its_build_asks_for(tutorial):
    assert_configs_hold_what_is_asked_for(tutorial, num_samples=15)


@pytest.mark.parametrize(
    "build",
    [
        pytest.param(loops, id="loops"),
        pytest.param(branches, id="python-branches"),
        pytest.param(one_name_in_two_scopes, id="one-name-in-two-scopes"),
        pytest.param(name_scopes, id="name-scopes"),
    ],
)
def test_a_config_holds_exactly_what_the_build_asks_for(build):
    assert_configs_hold_what_is_asked_for(taken_over(build), num_samples=40)


def assert_configs_hold_what_is_asked_for(workload, num_samples):
    """Compare configs with what the build takes where KerasTuner's own container has the values."""
    name_of = {path: name for name, paths in workload._found.paths.items() for path in paths}
    rng = np.random.default_rng(0)
    for _ in range(num_samples):
        given = {name_of[path]: v for path, v in flat(workload.space.sample(rng)).items()}
        assert probed(workload._declare, given).values == given


def test_a_build_gets_the_values_of_its_trial_and_no_others():
    seen = {}

    def build(hp):
        one_name_in_two_scopes(hp)
        seen.update(hp.values)
        return hp.get("units")

    workload = taken_over(build)
    seen.clear()

    assert workload.build_model({"model": "cnn", "units-2": 7, "mine": 3}) == 7
    assert seen == {"model": "cnn", "units": 7}


def test_inactive_values_are_none_to_the_build():
    def build(hp):
        hp.Choice("optimizer", ["adam", "sgd"])
        return hp.Float("momentum", 0, 1, parent_name="optimizer", parent_values="sgd"), (
            "momentum" in hp
        )

    workload = taken_over(build)
    rays_way = {"optimizer": "adam", "momentum": None}
    assert workload.build_model({"optimizer": "adam"}) == (None, False)
    assert workload.build_model(rays_way) == (None, False)
    assert workload.build_model({"optimizer": "sgd", "momentum": 0.5}) == (0.5, True)


def hidden(hp):
    a, b = hp.Float("a", 0, 1), hp.Float("b", 0, 1)
    if (a, b) == (0.3, 0.6):
        return hp.Int("c", 1, 5, default=2)
    return None


def test_what_probing_cannot_find_keeps_its_default_and_is_told(caplog):
    assert taken_over(hidden).build_model({"a": 0.3, "b": 0.6}) == 2
    assert "'c' is not in the search space and keeps its default 2" in caplog.text


def test_probes_lead_to_what_is_hidden():
    workload = taken_over(hidden, probes=[{"a": 0.3, "b": 0.6}])

    assert workload.space.parameters["c"] == Int(1, 5)
    assert workload.build_model({"a": 0.3, "b": 0.6, "c": 4}) == 4


def test_values_that_depend_on_others_are_those_of_the_first_declaration(caplog):
    found = space(lambda hp: hp.Int("b", 1, hp.Int("a", 2, 3)))

    assert found == {"a": Int(2, 3), "b": Int(1, 2)}
    assert caplog.text.count("'b' has values that depend on others") == 1


def test_combinations_that_cannot_be_built_hide_nothing():
    def build(hp):
        if hp.Int("poolings", 1, 4) > 2:
            raise ValueError("no pixels are left")
        if hp.Boolean("dense"):
            hp.Int("units", 1, 2)

    found = space(build)
    assert found["units"] == Int(1, 2, when={"dense": True})


def test_one_name_for_two_ranges_at_once_is_refused():
    def build(hp):
        hp.Choice("model", ["mlp", "cnn"])
        hp.Int("units", 1, 4)
        hp.Int("units", 1, 8, parent_name="model", parent_values="cnn")

    with pytest.raises(
        InvalidSettingsError, match=r"^units: .* active together: .* name of its own"
    ):
        space(build)


def test_a_build_without_hyperparameters_is_refused():
    with pytest.raises(
        InvalidSettingsError, match=r"declares no hyperparameters .* nothing to sear"
    ):
        space(lambda hp: None)


def test_a_build_that_fails_with_its_defaults_is_told():
    with pytest.raises(WorkloadError, match="defaults of all hyperparameters raised ZeroDivision"):
        space(lambda hp: 1 / hp.Int("a", 0, 1))


def test_the_default_config_is_keras_tuners(tutorial):
    hps = keras_tuner.HyperParameters()
    Classifier().build(hps)

    config = tutorial.default_config
    assert tutorial.space.validate(config) == []
    assert config == {**{n.replace(".", "_"): v for n, v in hps.values.items()}, "batch_size": 64}


@pytest.mark.parametrize(
    "hypermodel",
    [
        pytest.param(Classifier, id="class"),
        pytest.param(Classifier(), id="instance"),
        pytest.param(Classifier().build, id="function"),
    ],
)
def test_a_hypermodel_comes_in_three_forms(hypermodel, tutorial):
    workload = taken_over(hypermodel)
    workload._found = tutorial._found  # as if it were probed, which takes a second
    config = {**tutorial.default_config, "num_layers": 2, "units_1": 24}

    model = workload.build_model(config)
    widths = [layer.units for layer in model.layers if isinstance(layer, layers.Dense)]
    assert widths == [8, 24, 10]


@pytest.mark.parametrize(
    ("hypermodel", "data", "match"),
    [
        pytest.param(3, DATA, "must be a keras_tuner.HyperModel or a function .* not 3", id="3"),
        pytest.param(Classifier, (X, Y), r"data must be tune_tf.Data\(.* not tuple", id="data"),
        pytest.param(
            type("Sized", (Classifier,), {"__init__": lambda self, size: None}),
            DATA,
            "Sized cannot be made without arguments .*: give an instance",
            id="arguments",
        ),
    ],
)
def test_what_is_no_hypermodel_is_refused(hypermodel, data, match):
    with pytest.raises(InvalidSettingsError, match=match):
        from_hypermodel(hypermodel, data)


def test_without_keras_tuner_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "keras_tuner", None)
    with pytest.raises(
        InvalidSettingsError, match=r"need KerasTuner \(.*\): pip install tune-tf\[keras-tuner\]"
    ):
        from_hypermodel(Classifier, DATA)


def test_a_pickled_workload_is_not_probed_again():
    calls = []

    def build(hp):
        calls.append(1)
        return hp.Int("a", 1, 3)

    workload = taken_over(build, data=lambda config: DATA)
    workload.load_data({})
    copy = pickle.loads(cloudpickle.dumps(workload))
    there = copy._hypermodel.__closure__[0].cell_contents
    there.clear()

    assert copy.space == workload.space
    assert copy.build_model({"a": 3}) == 3
    assert copy.load_data({}).train[1].tolist() == Y.tolist()
    assert len(there) == 1


def test_a_hypermodel_finds_its_parameters_in_the_same_order_each_time(tutorial):
    assert list(space(Classifier())) == list(tutorial.space.parameters)


def fitting(fit):
    """Return a hypermodel with a ``fit`` of its own."""

    class Fitted(keras_tuner.HyperModel):
        def build(self, hp):
            return hp.Choice("model", ["a", "b"])

        def fit(self, hp, model, *args, **kwargs):
            return fit(self, hp, model, *args, **kwargs)

    return Fitted()


def choosing(self, hp, model, x, y, validation_data, callbacks=None, **kwargs):
    if hp.Boolean("scale"):
        x = keras.ops.convert_to_tensor(x) * 2
    with hp.conditional_scope("model", ["b"]):
        hp.Float("temperature", 1, 2)
    return model.fit(
        x,
        y,
        validation_data=validation_data,
        batch_size=hp.Choice("batch_size", [2, 3]),
        class_weight={0: hp.Float("weight", 1, 2), 1: 1.0, 2: 1.0},
        epochs=hp.Int("epochs", 2, 3),
        callbacks=[*callbacks, keras.callbacks.EarlyStopping(patience=hp.Int("patience", 1, 9))],
        **kwargs,
    )


CHOSEN = {"model": "a", "scale": True, "batch_size": 3, "weight": 1.5, "epochs": 2, "patience": 7}


def test_what_fit_chooses_is_searched():
    assert space(fitting(choosing)) == {
        "model": Choice(["a", "b"]),
        "scale": Choice([True, False]),
        "temperature": Float(1, 2, when={"model": "b"}),
        "batch_size": Choice([2, 3]),
        "weight": Float(1, 2),
        "epochs": Int(2, 3),
        "patience": Int(1, 9),
    }


def test_the_trial_trains_with_what_fit_chose():
    workload = taken_over(fitting(choosing))
    data = workload.load_data(CHOSEN)

    np.testing.assert_array_equal(data.train[0], 2 * X)
    assert type(data.train[0]) is np.ndarray
    assert data.validation is not None
    assert data.test is DATA.test
    assert data.class_weight == {0: 1.5, 1: 1.0, 2: 1.0}
    assert workload.global_batch_size(CHOSEN) == 3


def test_callbacks_and_epochs_of_fit_steer_the_trial():
    workload = taken_over(fitting(choosing), callbacks=[keras.callbacks.TerminateOnNaN()])
    nan, early, last = workload.callbacks(CHOSEN)
    model = keras.Sequential([keras.Input((1,)), layers.Dense(1)])
    model.stop_training = False
    last.set_model(model)

    stops = []
    for epoch in range(2):
        last.on_epoch_end(epoch)
        stops.append(model.stop_training)
    assert (type(nan).__name__, early.patience, stops) == ("TerminateOnNaN", 7, [False, True])
    assert workload.callbacks(CHOSEN)[0] is not nan


def test_data_are_loaded_again_only_for_what_fit_asks():
    plain, reads = taken_over(branches), {}
    plain.load_data(RecordingConfig(plain.default_config, reads))
    assert reads == {}

    own = taken_over(fitting(choosing))
    own.load_data(RecordingConfig({**CHOSEN, "unrelated": 1}, reads))
    assert {path[0] for path in reads} == set(CHOSEN)


def test_arguments_of_a_search_reach_the_trial():
    weights = np.ones(6, "float32")
    workload = taken_over(branches, data=Data(train=(X, Y, weights)), batch_size=5, verbose=0)

    assert workload.global_batch_size(workload.default_config) == 5
    assert workload.load_data({}).train[2] is weights
    assert taken_over(branches).global_batch_size({}) == 32


def trains_by_tape(self, hp, model, x, y, **kwargs):
    return model(x)


def returns_a_number(self, hp, model, *args, **kwargs):
    return min(model.fit(*args, **kwargs).history["val_loss"])


@pytest.mark.parametrize(
    ("fit", "match"),
    [
        pytest.param(trains_by_tape, "fit calls the model; .*train_step.*loop=", id="tape"),
        pytest.param(
            lambda self, hp, model, *args, **kw: model.optimizer, r"fit uses model\.opt", id="part"
        ),
        pytest.param(returns_a_number, r"fit uses \.history of what model.fit ret", id="history"),
        pytest.param(
            lambda self, hp, model, *args, **kw: 0.5, "fit calls model.fit never;", id="never"
        ),
        pytest.param(
            lambda self, hp, model, *args, **kw: [model.fit(*args, **kw) for _ in "12"],
            "fit calls model.fit 2 times; .*train_step",
            id="twice",
        ),
        pytest.param(
            lambda self, hp, model, *args, **kw: {"loss": 1.0} if model.fit(*args) else 0,
            r"fit returns \{'loss': 1.0\} instead",
            id="dict",
        ),
        pytest.param(
            lambda self, hp, model, *args, **kw: model.fit(*args, validation_split=0.2),
            r"fit gives validation_split=0.2 to model.fit, which has no counterpart",
            id="split",
        ),
    ],
)
def test_a_fit_that_trains_in_its_own_way_is_refused(fit, match):
    with pytest.raises(WorkloadError, match=f"^Fitted: {match}"):
        space(fitting(fit))


def test_a_fit_that_fails_is_told():
    def fit(self, hp, model, *args, **kwargs):
        return model.fit(*args, batch_size=kwargs["batch_size"])

    with pytest.raises(WorkloadError, match="raised KeyError: 'batch_size'"):
        space(fitting(fit))


def test_the_order_of_rows_is_as_fit_wants_it():
    def fit(self, hp, model, *args, **kwargs):
        return model.fit(*args, shuffle=hp.Boolean("shuffle", default=True), **kwargs)

    workload = taken_over(fitting(fit))
    given = [workload.shuffle({"model": "a", "shuffle": each}) for each in (True, False)]
    assert given == [True, False]
