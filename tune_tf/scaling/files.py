"""What is written of how a workload scales: a page, a picture, the numbers, a profile."""

import json
from pathlib import Path

from markupsafe import Markup

from tune_tf.report.environment import versions
from tune_tf.report.page import render
from tune_tf.report.still import draw_still, svg_text, write_png
from tune_tf.scaling.picture import ScalingPicture
from tune_tf.scaling.scale import Scaling
from tune_tf.scaling.table import HEADERS, table_of
from tune_tf.secrets import masked
from tune_tf.space import flat
from tune_tf.whole_files import write_whole

PROFILE = "profile"


def write_files(scaling: Scaling, folder: Path) -> dict[str, Path]:
    """Write ``scale.html``, ``scale.png``, ``scale.json`` and what the profiler gave.

    Args:
        scaling: How the workload scales.
        folder: Where to write; made where it is missing.

    Returns:
        Each file by its path within the folder.

    Raises:
        OSError: A file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    figure = draw_still(ScalingPicture(scaling.name, scaling.measurements, on_gpus=scaling.on_gpus))
    write_png(figure, folder / "scale.png")
    page = render(
        "scale.html.j2",
        scaling=scaling,
        started=scaling.started.strftime("%d %B %Y, %H:%M"),
        versions=", ".join(f"{name} {version}" for name, version in versions().items()),
        svg=Markup(svg_text(figure)),  # noqa: S704 - drawn by Matplotlib, which escapes texts
        headers=HEADERS,
        groups=list(table_of(scaling.measurements)),
        how=scaling.how,
        config=masked(", ".join(f"{path}={value}" for path, value in flat(scaling.config).items())),
    )
    write_whole(folder / "scale.html", page)
    write_whole(folder / "scale.json", json.dumps(scaling.to_dict(), indent=2, default=str) + "\n")
    written = {name: folder / name for name in ("scale.html", "scale.png", "scale.json")}
    for name, content in scaling.profile.items():
        path = folder / PROFILE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        written[f"{PROFILE}/{name}"] = path
    return written
