import sys

import pytest
from optuna.samplers import (
    CmaEsSampler,
    TPESampler,
)
from sampler_spaces import MIXED, NUMBERS

from tune_tf.errors import InvalidSettingsError
from tune_tf.searchers.samplers.catalogue import make_sampler
from tune_tf.space import Choice, Float, SearchSpace

REFUSED = {
    "unknown": (
        "tpes",
        MIXED,
        r"unknown sampler 'tpes': it must be one of 'tpe', .*did you mean 'tpe'",
    ),
    "seed": (TPESampler(), MIXED, "seed=1 has no effect"),
    "cmaes-choice": (
        "cmaes",
        MIXED,
        r"^act: is a choice, and sampler 'cmaes' supports numbers only",
    ),
    "cmaes-choice-in-group": (
        "cmaes",
        SearchSpace({"g": {"act": Choice([1, 2])}}),
        r"^g\.act: is a choice, .*: make it a range, or use 'tpe', .* or 'QMCSampler'$",
    ),
    "grid-continuous": ("grid", MIXED, r"^rate: has infinitely many values.* set a step"),
}


@pytest.mark.parametrize(("name", "space", "message"), REFUSED.values(), ids=REFUSED)
def test_a_space_that_a_sampler_cannot_take_is_refused(name, space, message):
    with pytest.raises(InvalidSettingsError, match=message):
        make_sampler(name, 1, space=space)


@pytest.mark.parametrize("name", ["cmaes", "freeze_thaw"])
def test_several_objectives_are_refused_by_samplers_of_one(name):
    with pytest.raises(InvalidSettingsError, match=f"'{name}' supports one objective, not 2:"):
        make_sampler(name, 1, space=NUMBERS, num_objectives=2)


def test_all_that_is_wrong_is_told_at_once(monkeypatch):
    monkeypatch.setitem(sys.modules, "cmaes", None)
    with pytest.raises(InvalidSettingsError, match=r"(?s)3 errors.*cmaes.*one objective.*act:"):
        make_sampler("cmaes", 1, space=MIXED, num_objectives=2)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cmaes", r"needs cmaes, which is not installed: pip install 'tune-tf\[cmaes\]'$"),
        ("gp", r"needs torch and scipy and greenlet, .* are .*: pip install 'tune-tf\[gp\]'$"),
    ],
)
def test_missing_packages_are_named_with_the_command(name, message, monkeypatch):
    for package in ("cmaes", "torch", "scipy", "greenlet"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InvalidSettingsError, match=message):
        make_sampler(name, 1, space=NUMBERS)


def test_a_choice_of_one_is_no_obstacle():
    space = SearchSpace({"act": Choice(["relu"]), "rate": Float(0, 1)})
    assert isinstance(make_sampler("cmaes", 1, space=space), CmaEsSampler)
