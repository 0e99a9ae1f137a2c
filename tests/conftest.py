"""What all tests share."""

import gc
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("RAY_worker_niceness", "0")  # else trials wait for tests that compute

import pytest
from complete_run import pytest_addoption, pytest_configure  # noqa: F401  hooks of pytest's
from filelock import FileLock
from hypothesis import settings

settings.register_profile("tests", deadline=None)  # a busy machine is no fault
settings.load_profile("tests")

NUM_LOGICAL_CPUS = 6


_DESELECTED = re.compile(r"not (\w+)")
_MARKED_WHOLE = re.compile(r"^pytestmark = (.*)$", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out a file that is marked as a whole with what is not to run: importing takes long."""
    if not collection_path.match("test_*.py") or " or " in config.option.markexpr:
        return None
    marks = "".join(_MARKED_WHOLE.findall(collection_path.read_text()))
    left_out = _DESELECTED.findall(config.option.markexpr)
    return True if any(re.search(rf"mark\.{mark}\b", marks) for mark in left_out) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what uses a Ray cluster or a store of MLflow's; put files of many slow tests first.

    Processes take a file each as they become free: a long one must not be the last.
    """
    for item in items:
        for fixture, mark in (("ray_cluster", "cluster"), ("store_uri", "mlflow")):
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(mark)
    num_slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: -num_slow[item.path])


@pytest.fixture(autouse=True)
def no_unmarked_cluster(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail where a test starts a Ray cluster and is not marked so: it would slow the fast tests."""
    before = _is_on_a_cluster()
    yield
    if not before and _is_on_a_cluster() and not request.node.get_closest_marker("cluster"):
        pytest.fail("it starts a Ray cluster: mark it with `cluster`")


@pytest.fixture(autouse=True)
def visible_gpus_as_before() -> Iterator[None]:
    """Restore which GPUs TensorFlow may see: some commands hide them from their whole process."""
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    yield
    if os.environ.get("CUDA_VISIBLE_DEVICES") != before:
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        os.environ |= {"CUDA_VISIBLE_DEVICES": before} if before is not None else {}


def _is_on_a_cluster() -> bool:
    ray = sys.modules.get("ray")
    return ray is not None and ray.is_initialized()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Keep the modules from the collector; split the CPU, of which TensorFlow takes one choice."""
    gc.collect()
    gc.freeze()
    if tf := sys.modules.get("tensorflow"):
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
    # It looks at all logs all the time, which takes a twentieth of the CPU, and tells nobody.
    ray._private.worker._global_node.kill_log_monitor()
    yield
    ray.shutdown()


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty SQLite store of MLflow's: its migrations, which take seconds, run once."""
    folder = tmp_path_factory.getbasetemp()
    path = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "mlflow.db"
    with FileLock(f"{path}.lock"):
        if not path.exists():
            from tune_tf.tracking.store import connect

            made = path.with_suffix(".made")
            connect(f"sqlite:///{made}").search_experiments()
            made.rename(path)
    return path


@pytest.fixture
def inline(tmp_path):
    """Let Tune's controller run its trials in this process, without a cluster."""
    from inline_actors import inlined

    with inlined(tmp_path / "session"):
        yield
