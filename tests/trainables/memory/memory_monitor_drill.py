"""A trial that Ray's memory monitor ends; prints how it ended and what was told.

A process of its own: the monitor's threshold is one of the whole cluster.
"""

import json
import logging
import os
import sys
import tempfile

import greedy
import psutil
import ray
from ray import cloudpickle, tune

from tune_tf.tracking.outcome_tracker import OutcomeTracker
from tune_tf.trainables import trainable
from tune_tf.trainables.memory.oom_retries import OomRetries

ROOM = 6e9  # bytes above what is taken when the drill begins
HELD = 12e9  # bytes that a whole batch holds, its square roots included


class Told(logging.Handler):
    """Keeps what is logged."""

    def __init__(self):
        super().__init__()
        self.texts = []

    def emit(self, record):
        self.texts.append(record.getMessage())


def main():
    memory = psutil.virtual_memory()
    threshold = (memory.total - memory.available + ROOM) / memory.total
    settings = {"memory_usage_threshold": threshold, "memory_monitor_refresh_ms": 50}
    os.environ.update({f"RAY_{name}": str(value) for name, value in settings.items()})
    cloudpickle.register_pickle_by_value(greedy)
    told = Told()
    logging.getLogger("tune_tf").addHandler(told)
    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    endings = OutcomeTracker()
    config = {"most": 0, "values": int(HELD / 8 / greedy.ROWS), "batch_size": greedy.ROWS}
    with tempfile.TemporaryDirectory() as folder:
        [trial] = tune.run(
            trainable(greedy.GreedyWorkload, seed=3),
            config=config,
            stop={"training_iteration": 2},
            callbacks=[endings, OomRetries(greedy.GreedyWorkload)],
            raise_on_failed_trial=False,
            storage_path=folder,
            verbose=0,
        ).trials
    ray.shutdown()
    outcome = endings.outcomes[trial.trial_id].value
    pieces = trial.last_result.get("micro_batches")
    said = {"outcome": outcome, "micro_batches": pieces, "told": told.texts}
    sys.stdout.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    main()
