"""The files in which Ray Tune keeps a trial's error, without the secrets in it."""

import pickle
from pathlib import Path

from ray.tune import TuneError
from ray.tune.experiment import Trial

from tune_tf.secrets import masked


def mask_error_files(trial: Trial) -> None:
    """Mask the secrets in what a failed trial's code raised, where Tune has written it.

    Tune writes both files in a folder of the driver and copies them to the sweep's storage; a copy
    in a storage that is not a local folder is written after this. A pickled error that holds a
    secret is replaced by one with the same text, masked, since nothing of another class's inside
    can be changed.
    """
    names = [Path(path).name for path in (trial.error_file, trial.pickled_error_file) if path]
    folders = {Path(folder) for folder in (trial.local_path, trial.path) if folder}
    for path in (folder / name for folder in folders for name in names):
        if path.is_file():
            _mask(path)


def _mask(path: Path) -> None:
    data = path.read_bytes()
    text = data.decode(errors="replace")
    shown = masked(text)
    if shown == text:
        return
    if path.suffix == ".pkl":
        path.write_bytes(pickle.dumps(TuneError(_text_beside(path))))
    else:
        path.write_text(shown)


def _text_beside(pickled: Path) -> str:
    """Return the error's text, which Tune writes beside its pickled form."""
    path = pickled.with_suffix(".txt")
    text = path.read_text(errors="replace") if path.is_file() else ""
    return masked(text) or "an error that held a secret"
