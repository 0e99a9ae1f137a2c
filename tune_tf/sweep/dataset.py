"""Data set of a sweep as MLflow records it: name, digest and source."""

import json
from pathlib import Path
from typing import Any

from tune_tf.data.digest import digest
from tune_tf.secrets import mask_secrets
from tune_tf.workload import Workload
from tune_tf.workloads.function_workload import FunctionWorkload
from tune_tf.workloads.keras_tuner.hypermodel import HypermodelWorkload
from tune_tf.workloads.settings_workload import SettingsWorkload

_DIGEST_LENGTH = 16


def dataset_of(workload: Workload, workload_name: str) -> dict[str, str] | None:
    """Return the fields of MLflow's ``Dataset`` for the data of a workload.

    The digest of files is that of their names, sizes and times; that of arrays at hand, of their
    contents; that of other data, of the code and attributes behind ``load_data``. None if these
    cannot be compared, such as a ``tf.data.Dataset``.
    """
    if isinstance(workload, SettingsWorkload):
        return _dataset_in_files(workload)
    is_made_of_data = isinstance(workload, FunctionWorkload | HypermodelWorkload)
    found = digest(workload.data if is_made_of_data else workload.load_data)  # type: ignore[attr-defined]
    if found is None:
        return None
    source = {"tags": {"mlflow.source.name": workload_name}}
    return _fields(workload_name.rpartition(":")[2], found.hex(), "code", source)


def _dataset_in_files(workload: SettingsWorkload[Any, Any, Any]) -> dict[str, str] | None:
    settings, stamp = workload.settings, workload.stamp
    paths = [path for name in settings.paths if (path := getattr(settings, name)) is not None]
    if stamp is None:
        known = digest(settings.model_dump(mode="json"))
        name = str(getattr(settings, "name", type(workload).__name__))
        return None if known is None else _fields(name, known.hex(), "keras", {"name": name})
    profile = {"num_files": stamp.num_files, "num_bytes": stamp.num_bytes}
    fields = _fields(Path(paths[0]).name, stamp.digest, "local", {"uri": mask_secrets(paths[0])})
    return {**fields, "profile": json.dumps(profile)}


def _fields(
    name: str, digest_text: str, source_type: str, source: dict[str, Any]
) -> dict[str, str]:
    return {
        "name": name,
        "digest": digest_text[:_DIGEST_LENGTH],
        "source_type": source_type,
        "source": json.dumps(source),
    }
