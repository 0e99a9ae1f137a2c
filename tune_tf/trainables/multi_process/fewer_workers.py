"""Recovery with fewer workers after the cluster lost a node that it cannot replace."""

import logging
from typing import Any

from ray import tune
from ray.tune.experiment import Trial

from tune_tf.parallelism import MultiWorker, Parallelism
from tune_tf.resources import TrialResources
from tune_tf.trainables.capacity import most_workers, room_by_node

_log = logging.getLogger(__name__)


class FewerWorkers(tune.Callback):
    """Callback that shrinks a failed trial to the live nodes, where its restore would wait forever.

    ``min_workers`` is the lower limit. The global batch size and the trial's numbers stay the same.
    A later restore grows the trial again as far as the nodes allow.
    """

    def __init__(self, parallelism: MultiWorker) -> None:
        self._parallelism = parallelism

    def on_trial_recover(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """Fit a recovering trial to the live nodes."""
        reserved = trial.placement_group_factory
        bundles = [bundle for bundle in reserved.bundles if bundle]
        share = TrialResources(int(bundles[0].get("CPU", 1)), bundles[0].get("GPU", 0))
        least = self._parallelism.min_workers or self._parallelism.num_workers
        room = room_by_node(share, answering=True)
        num_workers = max(most_workers(room, self._parallelism), least)
        if num_workers == len(bundles):
            return
        _log.warning(
            "trial %s continues with %d workers instead of %d", trial, num_workers, len(bundles)
        )
        trial.update_resources(
            tune.PlacementGroupFactory([{}, *[share.bundle] * num_workers], reserved.strategy)
        )


def fewer_workers(parallelism: Parallelism) -> list[FewerWorkers]:
    """Return the callback if the parallelism sets ``min_workers``, else none."""
    if isinstance(parallelism, MultiWorker) and parallelism.min_workers is not None:
        return [FewerWorkers(parallelism)]
    return []
