"""The search space of a hypermodel: scopes become conditions."""

import numpy as np
import pytest

pytest.importorskip("keras_tuner")

import keras_tuner
from hypermodels import branches, space, workload_of

from tune_tf import Choice, Float, Int
from tune_tf.errors import InvalidSettingsError, WorkloadError
from tune_tf.space import flatten


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
            hp.Int("depth", 1, 2)
        hp.Int("units", 1, 2, parent_name="kind", parent_values="b")


def one_name_in_two_scopes(hp):
    hp.Choice("model", ["mlp", "cnn", "rnn"])
    for model in ("mlp", "rnn"):
        with hp.conditional_scope("model", [model]):
            hp.Int("units", 1, 4)


def within_and_without(hp):
    hp.Choice("model", ["mlp", "cnn"])
    with hp.conditional_scope("model", ["mlp"]):
        hp.Int("units", 1, 4)
    hp.Int("units", 1, 4)


def loops(hp):
    for b in range(hp.Int("blocks", 0, 2)):
        for i in range(hp.Int(f"layers_{b}", 1, 2)):
            hp.Int(f"units_{b}_{i}", 4, 8)


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
                "head/deep/depth": Int(1, 2),
                "head/units": Int(1, 2, when={"head/kind": "b"}),
            },
            id="name-scopes",
        ),
        pytest.param(
            one_name_in_two_scopes,
            {
                "model": Choice(["mlp", "cnn", "rnn"]),
                "units": Int(1, 4),
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
                "layers_0": Int(1, 2),
                "units_0_0": Int(4, 8),
                "layers_1": Int(1, 2),
                "units_1_0": Int(4, 8),
                "units_0_1": Int(4, 8),
                "units_1_1": Int(4, 8),
            },
            id="loops-are-no-conditions",
        ),
        pytest.param(
            branches,
            {"deep": Choice([True, False]), "kind": Choice(["a", "b", "c"]), "rate": Float(0, 1)},
            id="python-branches",
        ),
    ],
)
def test_scopes_become_conditions_and_all_else_is_found(build, expected):
    assert space(build) == expected


def test_parents_stand_within_the_scopes_of_their_children():
    with pytest.raises(WorkloadError, match="defaults of all hyperparameters raised ValueError"):
        space(lambda hp: hp.Int("b", 1, 2, parent_name="c", parent_values=1))


@pytest.mark.parametrize("build", [nested_scopes, name_scopes])
def test_a_config_holds_exactly_what_the_build_asks_for(build):
    """Compare configs with what the build takes where KerasTuner's own container has the values."""
    workload = workload_of(build)
    rng = np.random.default_rng(0)
    for _ in range(40):
        given = flatten(workload.space.sample(rng))
        hps = keras_tuner.HyperParameters()
        hps.values = dict(given)
        build(hps)
        assert hps.values == given


def test_a_build_gets_the_values_of_its_trial_and_no_others():
    seen = {}

    def build(hp):
        nested_scopes(hp)
        seen.update(hp.values)
        return hp.get("norm")

    workload = workload_of(build)
    assert workload.space
    seen.clear()

    assert workload.build_model({"model": "cnn", "norm": "layer"}) == "layer"
    assert seen == {"model": "cnn", "norm": "layer"}


def test_inactive_values_are_none_to_the_build():
    def build(hp):
        hp.Choice("optimizer", ["adam", "sgd"])
        return hp.Float("momentum", 0, 1, parent_name="optimizer", parent_values="sgd"), (
            "momentum" in hp
        )

    workload = workload_of(build)
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
    assert workload_of(hidden).build_model({"a": 0.3, "b": 0.6}) == 2
    assert "'c' is not in the search space and keeps its default 2" in caplog.text


def test_what_is_hidden_may_be_given():
    assert workload_of(hidden).build_model({"a": 0.3, "b": 0.6, "c": 4}) == 4


def test_values_that_depend_on_others_are_those_of_the_first_declaration():
    assert space(lambda hp: hp.Int("b", 1, hp.Int("a", 2, 3))) == {"a": Int(2, 3), "b": Int(1, 2)}


def test_combinations_that_cannot_be_built_hide_nothing():
    def build(hp):
        if hp.Int("poolings", 1, 4) > 2:
            raise ValueError("no pixels are left")
        if hp.Boolean("dense"):
            hp.Int("units", 1, 2)

    found = space(build)
    assert found["units"] == Int(1, 2)


def test_a_name_that_no_path_may_have_is_refused():
    with pytest.raises(InvalidSettingsError, match=r"must not .* contain '.*'learning.rate'"):
        space(lambda hp: hp.Int("learning.rate", 1, 2))


def test_one_name_for_two_ranges_is_refused():
    def build(hp):
        hp.Choice("model", ["mlp", "cnn"])
        hp.Int("units", 1, 4)
        hp.Int("units", 1, 8, parent_name="model", parent_values="cnn")

    with pytest.raises(
        InvalidSettingsError, match=r"^units: is declared with different .* its own name"
    ):
        space(build)


def test_a_scope_that_never_opens_is_refused():
    with pytest.raises(InvalidSettingsError, match=r"filters.*cnn"):
        space(never)


def test_a_build_that_fails_with_its_defaults_is_told():
    with pytest.raises(WorkloadError, match="defaults of all hyperparameters raised ZeroDivision"):
        space(lambda hp: 1 / hp.Int("a", 0, 1))
