"""A trial's config as the ``keras_tuner.HyperParameters`` that a hypermodel reads."""

import copy
import logging
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from tune_tf.space.paths import SEPARATOR
from tune_tf.workload import Config
from tune_tf.workloads.keras_tuner.hypermodel_space import HypermodelSpace
from tune_tf.workloads.keras_tuner.hyperparameter import Hyperparameter

_log = logging.getLogger(__name__)


def trial_hyperparameters(config: Config, found: HypermodelSpace) -> Any:
    """Return the ``HyperParameters`` of a trial.

    Args:
        config: The trial's values. None stands for inactive, as Ray's own random search has it.
        found: What the hypermodel searches.
    """
    import keras_tuner  # brings in TensorFlow

    records = [dict(copy.deepcopy(hp.record)) for hp in found.hyperparameters]
    hps = keras_tuner.HyperParameters.from_config({"space": records, "values": {}})
    hps.values = TrialValues(config, found)
    return hps


class TrialValues(MutableMapping[str, Any]):
    """The values of active hyperparameters by KerasTuner's names, read from the config when asked.

    What the hypermodel does not ask for is not read, so that a workload's data are loaded again
    only when a value changed that they depend on. An active hyperparameter that the config lacks
    has KerasTuner's default.

    Args:
        config: The trial's values.
        found: What the hypermodel searches.
    """

    def __init__(self, config: Config, found: HypermodelSpace) -> None:
        self._config = config
        self._paths = found.paths
        self._known: dict[str, list[Hyperparameter]] = {}
        for hp in found.hyperparameters:
            self._known.setdefault(hp.name, []).append(hp)
        self._own: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        """Return a value; KeyError if it is inactive or unknown."""
        if name in self._own:
            return self._own[name]
        for path in self._paths.get(name, ()):
            value = _looked_up(self._config, path)
            if value is not None:
                return value
        for hp in self._known.get(name, ()):
            if hp.active(self):
                return hp.default
        raise KeyError(name)

    def __setitem__(self, name: str, value: Any) -> None:
        """Take a value that KerasTuner sets: the default of what was not found by probing."""
        if name not in self._known:
            _log.warning(
                "hyperparameter %r is not in the search space and keeps its default %r: it did not "
                "show when the hypermodel was probed; give from_hypermodel(probes=[{...}]) with "
                "values under which it does",
                name,
                value,
            )
        self._own[name] = value

    def __delitem__(self, name: str) -> None:
        """Forget a value that was set."""
        del self._own[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of what is active."""
        yield from (name for name in self._known if name in self)
        yield from (name for name in self._own if name not in self._known)

    def __len__(self) -> int:
        """Count what is active."""
        return sum(1 for _ in self)


def _looked_up(config: Mapping[str, Any], path: str) -> Any:
    value: Any = config
    for name in path.split(SEPARATOR):
        if not isinstance(value, Mapping) or name not in value:
            return None
        value = value[name]
    return value
