"""What the tests of the report share."""

import pytest
from sweeps_on_disk import many_trials, sweep_on_disk

from tune_tf.report import write_report


@pytest.fixture(scope="session")
def usual_sweep(tmp_path_factory):
    """A sweep of forty trials with stopping, failures and conditional parameters."""
    folder = tmp_path_factory.mktemp("usual")
    return sweep_on_disk(folder, many_trials(40, seed=3), epochs=27)


@pytest.fixture(scope="session")
def usual_page(usual_sweep, tmp_path_factory):
    """The path of its report."""
    return write_report(usual_sweep, tmp_path_factory.mktemp("report"))
