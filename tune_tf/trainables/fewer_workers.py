"""Callback that restarts trials with fewer workers after the loss of a node."""

import logging
from typing import Any

from ray import tune
from ray.tune.experiment import Trial

from tune_tf.parallelism import MultiWorker, Parallelism
from tune_tf.resources import TrialResources
from tune_tf.trainables.capacity import capacity_by_node, max_workers
from tune_tf.trainables.memory.oom_retries import with_bundles

_log = logging.getLogger(__name__)


class FewerWorkers(tune.Callback):
    """Callback that shrinks a failed trial to the live nodes, where its restore would wait forever.

    The global batch size and the trial's numbers stay the same. A later restore grows the trial
    again as far as the nodes allow. How often a trial is restored is ``max_failures``.

    Args:
        parallelism: Declared parallelism, with ``min_workers``, the lower limit.
    """

    def __init__(self, parallelism: MultiWorker) -> None:
        self.parallelism = parallelism

    def on_trial_recover(self, trial: Trial, **info: Any) -> None:
        """Fit a recovering trial to the live nodes."""
        reserved = trial.placement_group_factory
        bundles = [bundle for bundle in reserved.bundles if bundle]
        share = TrialResources.of_bundle(bundles[0])
        minimum = self.parallelism.min_workers or self.parallelism.num_workers
        capacity = capacity_by_node(share, reachable=True)
        num_workers = max(max_workers(capacity, self.parallelism), minimum)
        if num_workers == len(bundles):
            return
        _log.warning(
            "trial %s continues with %d workers instead of %d", trial, num_workers, len(bundles)
        )
        trial.update_resources(with_bundles(reserved, [{}, *[share.bundle] * num_workers]))


def fewer_workers(parallelism: Parallelism) -> list[FewerWorkers]:
    """Return the callback if the parallelism sets ``min_workers``, else none."""
    if isinstance(parallelism, MultiWorker) and parallelism.min_workers is not None:
        return [FewerWorkers(parallelism)]
    return []
