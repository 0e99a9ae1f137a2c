"""What the tests of this folder share."""

import pytest


@pytest.fixture(scope="session")
def tutorial():
    """The tutorial's hypermodel taken over, probed once."""
    from hypermodels import Classifier, workload_of

    workload = workload_of(Classifier())
    assert workload.space
    return workload
