"""Conversion of a trial's config to ``keras_tuner.HyperParameters``."""

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

    None in the config means inactive, as in Ray's random search.
    """
    import keras_tuner  # late: loads TensorFlow

    records = [dict(copy.deepcopy(hp.record)) for hp in found.hyperparameters]
    hps = keras_tuner.HyperParameters.from_config({"space": records, "values": {}})
    hps.values = TrialValues(config, found)
    return hps


class TrialValues(MutableMapping[str, Any]):
    """Values of active hyperparameters by KerasTuner name, read lazily from the config.

    Values that the hypermodel does not request are not read, so that data are reloaded only if a
    value that they depend on changes. An active hyperparameter that the config lacks has
    KerasTuner's default.
    """

    def __init__(self, config: Config, found: HypermodelSpace) -> None:
        self._config = config
        self._paths = found.paths
        self._known: dict[str, list[Hyperparameter]] = {}
        for hp in found.hyperparameters:
            self._known.setdefault(hp.name, []).append(hp)
        self._own: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        """Return a value; raise KeyError if it is inactive or unknown."""
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
        """Store a value that KerasTuner sets: the default of a hyperparameter missed by probing."""
        if name not in self._known:
            _log.warning(
                "hyperparameter %r is not in the search space and keeps its default %r: it was not "
                "declared when the hypermodel was probed; pass from_hypermodel(probes=[{...}]) "
                "with values under which it is",
                name,
                value,
            )
        self._own[name] = value

    def __delitem__(self, name: str) -> None:
        """Remove a stored value."""
        del self._own[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of active hyperparameters."""
        yield from (name for name in self._known if name in self)
        yield from (name for name in self._own if name not in self._known)

    def __len__(self) -> int:
        """Return the number of active hyperparameters."""
        return sum(1 for _ in self)


def _looked_up(config: Mapping[str, Any], path: str) -> Any:
    value: Any = config
    for name in path.split(SEPARATOR):
        if not isinstance(value, Mapping) or name not in value:
            return None
        value = value[name]
    return value
