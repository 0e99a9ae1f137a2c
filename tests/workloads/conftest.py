"""What the tests of this folder share."""

import pytest


def pytest_ignore_collect(collection_path, config):
    """Leave these files alone where no TensorFlow is wanted: reading them imports it."""
    return True if "not tf" in config.option.markexpr else None


@pytest.fixture(scope="session")
def tutorial():
    """The tutorial's hypermodel taken over, probed once."""
    from hypermodels import Classifier, taken_over

    workload = taken_over(Classifier())
    assert workload.space
    return workload
