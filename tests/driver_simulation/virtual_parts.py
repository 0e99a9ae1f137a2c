"""What stands in the place of parts of Ray, Tune and the package while a sweep is simulated."""

import contextlib
import json
import os
import shutil
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import mlflow.tracking.context.registry
import ray
import ray.air.execution._internal.actor_manager
import ray.train._internal.checkpoint_manager
import ray.train._internal.storage
import ray.train.constants
import ray.tune.execution.tune_controller
import ray.tune.trainable.trainable
import ray.tune.tune
import ray.tune.utils.util
from ray.tune.experiment import Trial
from turn_threads import VirtualDatetime
from turns import Turns
from virtual_cluster import ActorClass, Cluster, Future, Slots, Untrained
from virtual_store import Client, Store

import tune_tf.config.sweep_config
import tune_tf.sweep.callbacks.guards
import tune_tf.sweep.parts
import tune_tf.sweep.plan
import tune_tf.sweep.run
import tune_tf.sweep.runner
import tune_tf.sweep_folder
import tune_tf.tracking.environment
import tune_tf.tracking.runs
from tune_tf.atomic_files import write_atomically
from tune_tf.record import Record
from tune_tf.resources import TrialResources
from tune_tf.results import SweepResult
from tune_tf.schedulers.state import ResumeMixin
from tune_tf.searchers import OptunaSearcher
from tune_tf.space.document import YamlDocument
from tune_tf.sweep.plan import SweepPlan
from tune_tf.sweep.storage import SweepStorage
from tune_tf.workload import Workload


@contextlib.contextmanager
def virtual_parts(cluster: Cluster, store: Store, session: Path, heard: "Heard") -> Iterator[None]:
    """Put the virtual parts in place.

    Args:
        cluster: Runs the trials.
        store: Where MLflow keeps its runs.
        session: Folder of Ray's session.
        heard: Takes note of what the scheduler is told.
    """
    turns, slots = cluster.turns, cluster.faults.num_slots
    planned = slots + cluster.faults.num_lost
    replaced: list[tuple[Any, str, Any]] = [
        (ray, "is_initialized", lambda: True),
        (ray, "cluster_resources", lambda: {"CPU": float(planned)}),
        (ray, "wait", cluster.wait),
        (ray, "ObjectRef", Future),
        (ray, "get", cluster.get),
        (ray, "kill", cluster.kill),
        (ray.util, "get_node_ip_address", lambda: "127.0.0.1"),
        (ray.actor, "ActorClass", ActorClass),
        (ray.train._internal.storage, "_upload_to_fs_path", _upload),
        (ray.train._internal.storage, "_get_ray_train_session_dir", lambda: str(session)),
        (ray.train._internal.checkpoint_manager, "_delete_fs_path", _delete),
        (ray.tune.execution.tune_controller, "PlacementGroupResourceManager", lambda: Slots(slots)),
        (
            ray.tune.execution.tune_controller,
            "_ActorClassCache",
            lambda: SimpleNamespace(get=lambda kind: ActorClass(cluster, kind)),
        ),
        (ray.tune.tune, "air_usage", _Usage()),
        (ray.tune.tune.ray._common.usage.usage_lib, "record_library_usage", lambda name: None),
        (ray.tune.utils.util, "datetime", VirtualDatetime),
        (ray.tune.trainable.trainable, "datetime", VirtualDatetime),
        (Trial, "__hash__", lambda trial: zlib.crc32(trial.trial_id.encode())),
        (
            mlflow.tracking.context.registry,
            "resolve_tags",
            lambda: {"mlflow.source.git.commit": "c0ffee"},
        ),
        (tune_tf.sweep_folder, "datetime", VirtualDatetime),
        (tune_tf.sweep.parts, "session_folder", lambda: None),
        (tune_tf.sweep.parts, "dataset_of", lambda workload: dict(_DATASET)),
        (tune_tf.sweep.runner, "trainable", _untrained),
        (Untrained, "cluster", cluster),
        (tune_tf.sweep.run, "runs_as_user", lambda: False),
        (tune_tf.sweep.run, "plan_sweep", lambda config, **_: _plan(config, planned)),
        (tune_tf.sweep.callbacks.guards, "free_bytes", lambda path: 10**12),
        (tune_tf.tracking.environment, "environment_texts", lambda: {"a.txt": "virtual"}),
        (tune_tf.tracking.runs, "connect", lambda uri: Client(store, turns)),
        (ResumeMixin, "on_trial_result", heard.listening(ResumeMixin.on_trial_result)),
        (Record, "_commit", _noticed(turns, heard, Record._commit)),
        (OptunaSearcher, "finish", _remembered(cluster, OptunaSearcher.finish)),
        (SweepStorage, "remove_checkpoint", lambda storage, path: _delete(None, path)),
    ]
    with contextlib.ExitStack() as stack:
        for owner, name, value in replaced:
            stack.enter_context(mock.patch.object(owner, name, value, create=owner is Untrained))
        sys.modules["tune_tf.report"] = _REPORT
        yield


def settings_as_json() -> None:
    """Have settings written and read as JSON, which is YAML too, from now on: YAML takes long."""
    tune_tf.config.sweep_config.yaml_text = lambda values: f"{json.dumps(values, default=str)}\n"
    YamlDocument.parse = lambda text: YamlDocument(json.loads(text))


def _plan(config: Any, slots: int) -> SweepPlan:
    trials = min(slots, config.budget.num_samples)
    return SweepPlan(config, Workload, TrialResources(cpus=1), trials, ())


def _remembered(cluster: Cluster, finish: Callable[..., None]) -> Callable[..., None]:
    """Have the searcher of a session that ends be compared with the record."""

    def remember(searcher: OptunaSearcher, outcomes: Any) -> None:
        finish(searcher, outcomes)
        cluster.searcher = searcher

    return remember


class Heard:
    """Iterations of trials of which the scheduler was told, as far as that is recorded.

    Attributes:
        iterations: By trial id, in the order in which it was told.
    """

    def __init__(self) -> None:
        self.iterations: dict[str, list[int]] = {}
        self._unrecorded: list[tuple[str, int]] = []

    def listening(self, tell: Callable[..., str]) -> Callable[..., str]:
        """Return the method by which a scheduler is told of a result, with a note of it."""

        def listen(scheduler: Any, controller: Any, trial: Any, result: dict[str, Any]) -> str:
            self._unrecorded.append((trial.trial_id, int(result["training_iteration"])))
            return tell(scheduler, controller, trial, result)

        return listen

    def record(self) -> None:
        """Note that the step is recorded."""
        for trial_id, iteration in self._unrecorded:
            self.iterations.setdefault(trial_id, []).append(iteration)
        self._unrecorded.clear()

    def forget(self) -> None:
        """Forget what a process was told that died before it was recorded."""
        self._unrecorded.clear()


def _noticed(
    turns: Turns, heard: Heard, commit: Callable[[Record], None]
) -> Callable[[Record], None]:
    """Have each transaction of the record be a point before and after it."""

    def notice(record: Record) -> None:
        if record._waiting:
            what = f"record {' '.join(record._waiting[0][0].split()[:3])}"
            turns.point(what)
            commit(record)
            heard.record()
            turns.point(f"{what} done")

    return notice


def _upload(local_path: str, fs: Any, fs_path: str, exclude: Any = None) -> None:
    for folder, names, files in os.walk(local_path):
        names.sort()
        there = Path(fs_path, Path(folder).relative_to(local_path))
        there.mkdir(exist_ok=True)
        for name in sorted(files):
            shutil.copyfile(Path(folder, name), there / name)


def _delete(fs: Any, fs_path: str) -> None:
    path = Path(fs_path)
    for file in sorted(path.iterdir()):
        file.unlink()
    path.rmdir()


class _Usage:
    AirEntrypoint = ray.tune.tune.air_usage.AirEntrypoint

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


def _untrained(*_: Any, keep: Any, **__: Any) -> type[Untrained]:
    Untrained.keeps_best = keep is not None
    return Untrained


def _report(result: SweepResult, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "report.html"
    write_atomically(path, f"<html>{len(result.trials)} trials</html>")
    return path


_DATASET = {"name": "a.csv", "digest": "d1", "source_type": "local", "source": "{}"}
_REPORT = ModuleType("tune_tf.report")
_REPORT.write_report = _report  # type: ignore[attr-defined]
