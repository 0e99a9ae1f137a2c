"""Population based bandits: PBT with changes suggested by a Gaussian process."""

import math
import warnings
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers.pb2 import PB2
from sklearn.exceptions import ConvergenceWarning

from tune_tf.config.scheduler_settings import Pb2Settings
from tune_tf.objective import Objective
from tune_tf.schedulers.mutations import nearest_value, pb2_refusal, select_mutations
from tune_tf.schedulers.outcome_mixin import comparison_arguments
from tune_tf.schedulers.population import PopulationMixin
from tune_tf.space import Float, Int, Parameter, SearchSpace, flatten, nest


class Pb2Scheduler(PopulationMixin, PB2):
    """Ray's ``PB2`` with the bounds of a search space (https://arxiv.org/abs/2002.02518).

    The process sees the logarithms of the values of logarithmic ranges. Requires scikit-learn.

    Raises:
        InvalidSettingsError: The space does not contain the mutations, or they cannot change.
    """

    def __init__(
        self, objective: Objective, settings: Pb2Settings, space: SearchSpace | None
    ) -> None:
        """Create Ray's scheduler."""
        mutations = select_mutations(settings.mutations, space, pb2_refusal, settings.name)
        self._logarithmic = {
            path: each
            for path, each in mutations.parameters.items()
            if isinstance(each, Float | Int) and each.log
        }
        PB2.__init__(
            self,
            **comparison_arguments(objective),
            perturbation_interval=settings.perturbation_interval,
            hyperparam_bounds=mutations.to_bounds(),
            quantile_fraction=settings.quantile_fraction,
        )
        self._hyperparam_bounds_flat |= {
            path: [math.log(each.low), math.log(each.high)]
            for path, each in self._logarithmic.items()
        }
        self._configure(objective, settings)

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Return Ray's decision, without convergence warnings of a process fitted to few points."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return super().on_trial_result(tune_controller, trial, result)

    def _save_trial_state(self, state: Any, time: int, result: dict[str, Any], trial: Trial) -> Any:
        """Add a result to the data of the process."""
        return super()._save_trial_state(state, time, result, self._in_logarithms(trial))

    def _get_new_config(self, trial: Trial, trial_to_clone: Trial) -> tuple[Any, Any]:
        """Return the config that the process suggests."""
        config, operations = super()._get_new_config(
            self._in_logarithms(trial), self._in_logarithms(trial_to_clone)
        )
        values = flatten(config)
        exponentials = {
            path: _exponential(each, values[path]) for path, each in self._logarithmic.items()
        }
        return nest(values | exponentials), operations

    def _in_logarithms(self, trial: Trial) -> Any:
        values = flatten(trial.config)
        logarithms = {path: math.log(values[path]) for path in self._logarithmic}
        return _TrialView(trial, nest(values | logarithms))


class _TrialView:
    """Trial with another config."""

    def __init__(self, trial: Trial, config: dict[str, Any]) -> None:
        self._trial = trial
        self.config = config

    def __getattr__(self, name: str) -> Any:
        return getattr(self._trial, name)

    def __str__(self) -> str:
        return str(self._trial)


def _exponential(parameter: Parameter, logarithm: float) -> Any:
    """Return the value of a range with a logarithm, which may be off by its round-off."""
    value = math.exp(logarithm)
    return nearest_value(parameter, round(value) if isinstance(parameter, Int) else value)
