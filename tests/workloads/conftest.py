"""What the tests of this folder share."""

import pytest


@pytest.fixture(scope="session")
def tutorial():
    """The tutorial's hypermodel taken over, probed once."""
    from hypermodels import Classifier, taken_over

    workload = taken_over(Classifier())
    assert workload.space
    return workload
