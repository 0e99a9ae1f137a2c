"""The number of a trial, from which its seed follows."""

import hashlib
import re

from tune_tf.training.core.seeds import trial_seed

_NUMBER = re.compile(r"_(\d{5,7})$")  # a searcher's id of eight digits is no number of a trial


def seed_of_trial(sweep_seed: int | None, trial_id: str, trial_name: str) -> int:
    """Return a trial's seed, from the sweep's and the number at the end of its name or id.

    Tune's own ids end in a number; names that :func:`tune_tf.run_sweep` gives do too. Without a
    number all trials of a sweep start from the same seed; without a seed of the sweep it follows
    from the trial's id.
    """
    if sweep_seed is None:
        return int.from_bytes(hashlib.sha256(trial_id.encode()).digest()[:4], "big")
    match = _NUMBER.search(trial_name) or _NUMBER.search(trial_id)
    return trial_seed(sweep_seed, int(match[1]) if match else 0)
