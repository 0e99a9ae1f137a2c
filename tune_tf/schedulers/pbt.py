"""Population based training: the worst trials go on from the best ones, a little changed."""

from ray.tune.schedulers import PopulationBasedTraining

from tune_tf.config.scheduler_settings import PbtSettings
from tune_tf.objective import Objective
from tune_tf.result_keys import TRAINING_ITERATION
from tune_tf.schedulers.mutations import moves, mutations
from tune_tf.schedulers.population import PopulationMixin
from tune_tf.space import SearchSpace


class PbtScheduler(PopulationMixin):
    """Ray's ``PopulationBasedTraining`` with the mutations of a search space.

    A number is multiplied by one of the factors and kept in its range, a choice becomes one of its
    neighbours, and now and then either is drawn anew (https://arxiv.org/abs/1711.09846). The
    trainable has to save checkpoints, and to go on from one of another trial.

    Args:
        objective: The metric that is compared.
        settings: When trials are compared, and what changes.
        space: Where ``settings.mutations`` stand.

    Raises:
        InvalidSettingsError: The space does not hold them, or they cannot change.
    """

    def __init__(
        self, objective: Objective, settings: PbtSettings, space: SearchSpace | None
    ) -> None:
        """Make Ray's scheduler."""
        changing = mutations(settings.mutations, space, moves, settings.name)
        PopulationBasedTraining.__init__(
            self,
            time_attr=TRAINING_ITERATION,
            metric=objective.metric,
            mode=objective.mode,
            perturbation_interval=settings.perturbation_interval,
            hyperparam_mutations=changing.to_ray(),
            quantile_fraction=settings.quantile_fraction,
            resample_probability=settings.resample_probability,
            perturbation_factors=settings.perturbation_factors,
            custom_explore_fn=changing.within,
            synch=settings.synch,
        )
        self._begin(objective, settings)
