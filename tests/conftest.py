"""What all tests share."""

import os
from collections.abc import Iterator

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import pytest

NUM_LOGICAL_CPUS = 3


def pytest_collection_finish(session: pytest.Session) -> None:
    """Split the CPU for tests of several replicas: TensorFlow takes one choice a process."""
    if any(item.get_closest_marker("tf") for item in session.items):
        import tensorflow as tf

        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices("CPU")[0],
            [tf.config.LogicalDeviceConfiguration() for _ in range(NUM_LOGICAL_CPUS)],
        )
        tf.config.list_logical_devices()  # from here on the choice is fixed


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """One Ray cluster on this machine for the whole test session."""
    import ray

    ray.init(
        address="local",
        num_cpus=4,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    yield
    ray.shutdown()
