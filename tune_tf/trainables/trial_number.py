"""Seed of a trial, from the sweep's seed and the trial's number."""

import hashlib
import re

from tune_tf.training.core.seeds import trial_seed

_NUMBER = re.compile(r"_(\d{5,7})$")  # eight digits are a searcher's id, not a number


def seed_of_trial(sweep_seed: int | None, trial_id: str, trial_name: str) -> int:
    """Return a trial's seed, from the sweep's seed and the number at the end of its name or id.

    Tune's ids and the names given by :func:`tune_tf.run_sweep` end in a number. Without a number,
    all trials of a sweep get the same seed. Without a sweep seed, it is a hash of the trial's id.
    """
    if sweep_seed is None:
        return int.from_bytes(hashlib.sha256(trial_id.encode()).digest()[:4], "big")
    match = _NUMBER.search(trial_name) or _NUMBER.search(trial_id)
    return trial_seed(sweep_seed, int(match[1]) if match else 0)
