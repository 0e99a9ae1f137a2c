"""Population based training: the worst trials continue from the best, with changed configs."""

from ray.tune.schedulers import PopulationBasedTraining

from tune_tf.config.scheduler_settings import PbtSettings
from tune_tf.objective import Objective
from tune_tf.result_keys import TRAINING_ITERATION
from tune_tf.schedulers.mutations import pbt_refusal, select_mutations
from tune_tf.schedulers.population import PopulationMixin
from tune_tf.space import SearchSpace


class PbtScheduler(PopulationMixin):
    """Ray's ``PopulationBasedTraining`` with the mutations of a search space.

    A number is multiplied by one of the factors and clipped to its range, a choice moves to a
    neighbouring option, and now and then either is sampled anew (https://arxiv.org/abs/1711.09846).
    The trainable must save checkpoints and be able to continue from another trial's.

    Args:
        objective: The metric that trials are compared by.
        settings: Perturbation interval and mutations.
        space: The search space of ``settings.mutations``.

    Raises:
        InvalidSettingsError: The space does not contain the mutations, or they cannot change.
    """

    def __init__(
        self, objective: Objective, settings: PbtSettings, space: SearchSpace | None
    ) -> None:
        """Create Ray's scheduler."""
        changing = select_mutations(settings.mutations, space, pbt_refusal, settings.name)
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
            custom_explore_fn=changing.clip,
            synch=settings.synch,
        )
        self._configure(objective, settings)
