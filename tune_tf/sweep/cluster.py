"""The Ray cluster of a sweep: the one that is connected, or one of our own for a while."""

import contextlib
import logging
import os
from collections.abc import Iterator

import ray

from tune_tf.errors import UnavailableResourcesError
from tune_tf.parallelism import Mirrored, Parallelism
from tune_tf.resources import TrialResources
from tune_tf.trainables.factory import check_cluster
from tune_tf.trainables.room import num_trials, room_by_node

# How Tune behaves below us, unless the user's environment says otherwise.
TUNE_ENVIRONMENT = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # we name the loggers that a sweep needs
    "TUNE_GLOBAL_CHECKPOINT_S": "2",  # what a killed driver can lose of Tune's own state
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",  # our scheduler checks, and names what there is
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",  # the result, MLflow and error.txt have them
    "RAY_AIR_NEW_OUTPUT": "0",
    "TF_CPP_MIN_LOG_LEVEL": "2",
}


def num_fitting(resources: TrialResources, parallelism: Parallelism = Mirrored()) -> int:  # noqa: B008  frozen
    """Return how many trials the cluster can hold at a time.

    Args:
        resources: What a trial reserves.
        parallelism: How it is spread.

    Raises:
        UnavailableResourcesError: There is no room for a single one.
    """
    check_cluster(resources, parallelism)
    if ray.is_initialized():
        shares = parallelism.shares(resources)
        return num_trials(room_by_node(shares[0]), parallelism, shares)
    num_cpus = os.cpu_count() or 1
    if resources.cpus > num_cpus:
        raise UnavailableResourcesError(
            f"a trial asks for {resources.cpus} CPUs, but this machine has {num_cpus}: it "
            "would wait for ever; ask for less, or connect to a Ray cluster"
        )
    return 1 if resources.gpus else num_cpus // resources.cpus


@contextlib.contextmanager
def cluster(*, num_cpus: int | None = None) -> Iterator[None]:
    """Use the Ray cluster that is connected, or one of our own for as long as it is needed.

    Args:
        num_cpus: CPUs that one of our own should count; None for those that there are.
    """
    if ray.is_initialized():
        yield
        return
    with environment(TUNE_ENVIRONMENT):  # the workers inherit it
        ray.init(
            num_cpus=None if os.environ.get("RAY_ADDRESS") else num_cpus,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    try:
        yield
    finally:
        ray.shutdown()


@contextlib.contextmanager
def environment(variables: dict[str, str]) -> Iterator[None]:
    """Set environment variables that the user has not set, for a while."""
    added = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
