"""Files that describe the scaling of a workload: page, plot, numbers and profile."""

import json
import logging
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from tune_tf.atomic_files import write_atomically
from tune_tf.config import SweepConfig
from tune_tf.estimate.scaling.picture import ScalingPicture
from tune_tf.estimate.scaling.record import record_scaling
from tune_tf.estimate.scaling.scale import Scaling
from tune_tf.estimate.scaling.table import HEADERS, table_of
from tune_tf.report.page import render, versions
from tune_tf.report.plots.picture import draw_static, svg_text, write_png
from tune_tf.secrets import mask_secrets
from tune_tf.space import flat
from tune_tf.sweep.plan import checked_tracking_uri

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ScalingFiles:
    """Folder of the scaling files, and id of the MLflow run; None if nothing was recorded."""

    folder: Path
    mlflow_run_id: str | None


def write_scaling(scaling: Scaling, config: SweepConfig) -> ScalingFiles:
    """Write scaling files below ``storage_path``, and an MLflow run in the sweep's experiment.

    If MLflow's store does not answer, only the run is missing.

    Raises:
        OSError: A file cannot be written.
    """
    from mlflow.exceptions import MlflowException  # slow to import, needed only here

    name = f"{scaling.name}-scale-{scaling.started:%Y%m%d-%H%M%S}"
    folder = config.sweeps_path / name
    files = write_scaling_files(scaling, folder)
    tracking_uri = checked_tracking_uri(config)
    if tracking_uri is None or config.mlflow is None:
        return ScalingFiles(folder, None)
    try:
        run_id = record_scaling(
            scaling,
            files,
            tracking_uri=tracking_uri,
            experiment_name=config.mlflow.experiment_name,
            run=name,
        )
    except (MlflowException, OSError) as error:
        _log.warning("could not record the run in MLflow (%s); the files are in %s", error, folder)
        return ScalingFiles(folder, None)
    return ScalingFiles(folder, run_id)


PROFILE = "profile"


def write_scaling_files(scaling: Scaling, folder: Path) -> dict[str, Path]:
    """Write ``scale.html``, ``scale.png``, ``scale.json`` and the files of the profile to a folder.

    Returns:
        Paths of the files, by path within the folder.

    Raises:
        OSError: A file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    figure = draw_static(
        ScalingPicture(scaling.name, scaling.measurements, on_gpus=scaling.on_gpus)
    )
    write_png(figure, folder / "scale.png")
    page = render(
        "scale.html.j2",
        scaling=scaling,
        started=scaling.started.strftime("%d %B %Y, %H:%M"),
        versions=", ".join(f"{name} {version}" for name, version in versions().items()),
        svg=Markup(svg_text(figure)),  # noqa: S704 - Matplotlib escapes texts
        headers=HEADERS,
        groups=list(table_of(scaling.measurements)),
        how=scaling.how,
        config=mask_secrets(
            ", ".join(f"{path}={value}" for path, value in flat(scaling.config).items())
        ),
    )
    write_atomically(folder / "scale.html", page)
    write_atomically(
        folder / "scale.json", json.dumps(scaling.to_dict(), indent=2, default=str) + "\n"
    )
    written = {name: folder / name for name in ("scale.html", "scale.png", "scale.json")}
    for name, content in scaling.profile.items():
        path = folder / PROFILE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        written[f"{PROFILE}/{name}"] = path
    return written
