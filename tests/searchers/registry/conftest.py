"""What the tests of the trial registry share."""

import pytest
from optuna.storages import InMemoryStorage


@pytest.fixture
def storage():
    return InMemoryStorage()
