"""The files of Ray Tune's own state, for tests that kill a driver of a plain ``tune.run``."""

import time
from pathlib import Path

from ray.tune.experiment import Trial


def bring_up_to_date(trial: Trial) -> None:
    """Have what Tune has written stand where it resumes from.

    It copies its files there in a thread. A kill at that moment leaves them torn or old, and Tune
    then begins anew; a sweep of this package's own has snapshots for that.
    """
    staging, target = Path(trial.local_experiment_path), Path(trial.remote_experiment_path)
    paths = [*staging.glob("*.json"), *staging.glob("*.pkl")]
    while not all(_is_equal(target / path.name, path) for path in paths):
        for path in paths:
            partial = target / f".{path.name}"
            partial.write_bytes(path.read_bytes())
            partial.replace(target / path.name)
        time.sleep(0.1)  # the thread may be at it


def _is_equal(path: Path, other: Path) -> bool:
    return path.is_file() and path.read_bytes() == other.read_bytes()
