"""Ray actor that saves models in MLflow's format.

It imports little besides TensorFlow and MLflow: neither Tune nor the driver's modules.
"""

import contextlib
import os
import shutil
import tempfile
import warnings
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tune_tf.atomic_files import atomic_path
from tune_tf.remote_storage import CheckpointLocation
from tune_tf.resources import TrialResources
from tune_tf.tracking.trial_run import throwaway_run
from tune_tf.workload import Config, Workload
from tune_tf.workloads import column_model
from tune_tf.workloads.column_model import ColumnModel, column_dtypes

_NICENESS = 10  # the last trials have priority
_LOADER = "tune_tf_column_model"
_TENSORFLOW = ("tensorflow", "tensorflow-cpu", "tf-nightly")


class ExportActor:
    """Ray actor of the export process."""

    def __init__(self) -> None:
        os.nice(_NICENESS)
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # the GPUs belong to the trials
        if "DO_NOT_TRACK" not in os.environ:
            os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
        from tune_tf.training.devices import claim_devices

        claim_devices(TrialResources(cpus=1), 1)
        import mlflow.keras  # noqa: F401  loaded early for the end of the sweep

        self._written: tuple[CheckpointLocation, Any] | None = None  # and its model

    def write(
        self,
        workload: Workload,
        config: Config,
        checkpoint: CheckpointLocation,
        path: Path,
        metadata: dict[str, Any],
    ) -> None:
        """Save the model of a checkpoint, as :meth:`ModelExportProcess.write`."""
        from tune_tf.training.export import input_example, trained_model

        with throwaway_run():
            model = trained_model(workload, config, checkpoint)
            example = input_example(workload, config, model)
            served = workload.serving_model(model, config)
            if example is not None:
                example = workload.serving_rows(example)
        with atomic_path(path) as folder:
            folder.mkdir()
            if example is not None and any(column_dtypes(served)):
                _save_column_model(served, example, folder, metadata)
            else:
                _save(served, example, folder, metadata)
        self._written = checkpoint, model

    def evaluate(
        self, workload: Workload, config: Config, checkpoint: CheckpointLocation
    ) -> dict[str, float]:
        """Return metrics on the test rows, as :meth:`ModelExportProcess.evaluate`."""
        from tune_tf.training.export import evaluate_test_rows, trained_model

        with throwaway_run():
            if self._written is None or self._written[0] != checkpoint:
                self._written = checkpoint, trained_model(workload, config, checkpoint)
            return evaluate_test_rows(workload, config, self._written[1])


def _save(model: Any, example: Any, folder: Path, metadata: dict[str, Any]) -> None:
    import mlflow.keras
    from mlflow.models import infer_signature

    signature = None
    if example is not None:
        predicted = model.predict(example, verbose=0)
        signature = infer_signature(
            example, None if isinstance(predicted, list | tuple) else predicted
        )
    mlflow.keras.save_model(
        model,
        str(folder),
        signature=signature,
        input_example=example,
        # MLflow would infer them by loading the model in another process, which takes seconds.
        pip_requirements=requirements(),
        metadata=metadata,
    )


def _save_column_model(model: Any, example: Any, folder: Path, metadata: dict[str, Any]) -> None:
    """Save a model with one input per column, which MLflow then loads as a ``ColumnModel``.

    MLflow's typed columns refuse tables as pandas reads them: whole numbers for ``double``, missing
    ones for ``long``. So the signature has names and the type ``Any``, and the model checks values.
    """
    import keras
    import mlflow.pyfunc
    import pandas as pd
    from mlflow.models import Model, ModelSignature, infer_signature
    from mlflow.types.schema import AnyType, ColSpec, Schema

    rows = pd.DataFrame(example)
    columns = [ColSpec(AnyType(), name) for name, _ in column_dtypes(model)]
    predicted = infer_signature(ColumnModel(model).predict(rows)).inputs
    saved = Model(metadata=metadata).add_flavor(  # for mlflow.keras.load_model
        "keras",
        data="data",
        keras_version=keras.__version__,
        keras_backend=keras.backend.backend(),
        save_exported_model=False,
    )
    with tempfile.TemporaryDirectory(prefix="tune_tf-") as temporary:
        file, loader = Path(temporary, "model.keras"), Path(temporary, f"{_LOADER}.py")
        model.save(file)
        shutil.copyfile(column_model.__file__, loader)
        with warnings.catch_warnings():  # of pandas about MLflow
            warnings.simplefilter("ignore", DeprecationWarning)
            mlflow.pyfunc.save_model(
                str(folder),
                loader_module=_LOADER,
                data_path=str(file),
                code_paths=[str(loader)],
                mlflow_model=saved,
                signature=ModelSignature(Schema(columns), predicted),
                input_example=rows,
                pip_requirements=[*requirements(), f"pandas=={version('pandas')}"],
            )


def requirements() -> list[str]:
    """Return requirements to load a Keras model, pinned to the installed versions."""
    found = []
    for names in (("keras",), _TENSORFLOW, ("numpy",)):
        for name in names:
            with contextlib.suppress(PackageNotFoundError):
                found.append(f"{name}=={version(name)}")
                break
    return found
