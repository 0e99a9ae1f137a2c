"""Population based bandits: PBT with changes suggested by a Gaussian process."""

import warnings
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers.pb2 import PB2
from sklearn.exceptions import ConvergenceWarning

from tune_tf.config.scheduler_settings import Pb2Settings
from tune_tf.objective import Objective
from tune_tf.schedulers.mutations import pb2_refusal, select_mutations
from tune_tf.schedulers.outcome_mixin import comparison_arguments
from tune_tf.schedulers.population import PopulationMixin
from tune_tf.space import SearchSpace


class Pb2Scheduler(PopulationMixin, PB2):
    """Ray's ``PB2`` with the bounds of a search space (https://arxiv.org/abs/2002.02518).

    Logarithmic ranges are modelled linearly, too. Requires scikit-learn.

    Raises:
        InvalidSettingsError: The space does not contain the mutations, or they cannot change.
    """

    def __init__(
        self, objective: Objective, settings: Pb2Settings, space: SearchSpace | None
    ) -> None:
        """Create Ray's scheduler."""
        mutations = select_mutations(settings.mutations, space, pb2_refusal, settings.name)
        PB2.__init__(
            self,
            **comparison_arguments(objective),
            perturbation_interval=settings.perturbation_interval,
            hyperparam_bounds=mutations.to_bounds(),
            quantile_fraction=settings.quantile_fraction,
            synch=settings.synch,
        )
        self._configure(objective, settings)

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Return Ray's decision, without convergence warnings of a process fitted to few points."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return super().on_trial_result(tune_controller, trial, result)
