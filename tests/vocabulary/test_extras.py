"""Extras of the package: an error names the packages and the command that pyproject.toml has."""

import re
import sys
import tomllib
from importlib import metadata

import pytest
from documented import PAGES, ROOT
from packaging.requirements import Requirement

from tune_tf import extras
from tune_tf.errors import InvalidSettingsError
from tune_tf.searchers.samplers.catalogue import make_sampler
from tune_tf.space import Float, SearchSpace

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
SPACE = SearchSpace({"rate": Float(0, 1)})

ASK = {
    "gp": lambda: make_sampler("gp", 1, space=SPACE),
    "cmaes": lambda: make_sampler("cmaes", 1, space=SPACE),
}


def names_of(extra):
    return [Requirement(each).name for each in EXTRAS[extra]]


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_packages_of_an_extra_are_those_of_pyproject(extra):
    assert [each.name for each in extras.requirements_of(extra)] == names_of(extra)


@pytest.mark.parametrize(("extra", "ask"), ASK.items(), ids=ASK)
def test_each_missing_package_of_an_extra_is_named_with_the_command(extra, ask, monkeypatch):
    for name in names_of(extra):
        with monkeypatch.context() as hidden:
            hidden.setitem(sys.modules, name, None)
            with pytest.raises(InvalidSettingsError, match=rf"needs .*\b{name}\b") as caught:
                ask()
            assert str(caught.value).endswith(f": pip install 'tune-tf[{extra}]'")


def test_a_checkout_that_is_not_installed_names_no_packages(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(extras, "requires", missing)
    assert extras.missing_extra("gp") is None


@pytest.mark.parametrize("page", [*PAGES, ROOT / "Makefile"], ids=lambda page: page.name)
def test_every_extra_that_is_written_exists(page):
    assert {*re.findall(r"tune-tf\[([\w-]+)\]", page.read_text())} <= EXTRAS.keys()
