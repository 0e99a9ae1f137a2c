"""Discovery of all hyperparameters of a KerasTuner build by repeated builds.

A build declares a hyperparameter by requesting its value, so one behind a Python ``if`` or in a
longer loop appears only when the code reaches it.
"""

import logging
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tune_tf.errors import ErrorDetail, InvalidSettingsError, WorkloadError
from tune_tf.workloads.keras_tuner.hypermodel_space import (
    Hyperparameter,
    HyperparameterKey,
    HyperparameterValues,
)

_log = logging.getLogger(__name__)

_NUM_RANDOM = 8
_MAX_PROBES = 1000


@dataclass(frozen=True)
class BuildProbe:
    """Hyperparameters that one build with some values declared, active or not.

    ``active`` holds the values of the active ones; ``error`` is what the build raised, if anything.
    """

    inputs: HyperparameterValues
    declared: Mapping[HyperparameterKey, Hyperparameter]
    active: Mapping[HyperparameterKey, Any]
    error: Exception | None = None

    @property
    def values(self) -> dict[str, Any]:
        """Values of the active hyperparameters, by name."""
        return {name: value for (name, _), value in self.active.items()}


class HyperparameterDiscovery:
    """Search for all hyperparameters that builds declare.

    It builds with the defaults; all lowest and all highest values; each option of each choice and
    both ends of each range, one by one, together with the values under which it first appeared;
    each value of an integer that changes what is declared; and a few random sets. It repeats this
    until nothing new appears. ``probes`` are additional sets of values to build with.

    Raises:
        WorkloadError: The build fails with the defaults or with one of ``probes``.
        InvalidSettingsError: Hyperparameters have no counterpart.
    """

    def __init__(
        self, build: Callable[[Any], Any], probes: Iterable[HyperparameterValues] = ()
    ) -> None:
        self.hyperparameters: dict[HyperparameterKey, Hyperparameter] = {}
        self._build = build
        self._probes: dict[str, BuildProbe] = {}  # by the inputs as text
        self._warned: set[HyperparameterKey] = set()
        self._first_values: dict[HyperparameterKey, HyperparameterValues] = {}
        for values in ({}, *probes):
            self._probe(values)
            probe = self._probes.get(_inputs_text(values))  # None beyond the maximum of builds
            if probe is not None and (error := probe.error) is not None:
                inputs = f"with {values}" if values else "with the defaults of all hyperparameters"
                raise WorkloadError(
                    f"building the hypermodel {inputs} raised {type(error).__name__}: {error}"
                ) from error
        self._probe_until_complete()

    def conditions_of(self, key: HyperparameterKey) -> dict[HyperparameterKey, tuple[Any, ...]]:
        """Return the values of others, outside scopes, under which a hyperparameter is declared.

        An example is ``units_3`` in ``for i in range(hp.Int("layers", 1, 4))``. Returns nothing if
        the observed builds contradict each other; the hyperparameter is then always searched, as in
        KerasTuner.
        """
        hp = self.hyperparameters[key]
        probes = [probe for probe in self._completed() if hp.active(probe.values)]
        declaring = [probe for probe in probes if key in probe.declared]
        conditions: dict[HyperparameterKey, tuple[Any, ...]] = {}
        for parent in self._structural() if len(declaring) < len(probes) else ():
            if parent == key:
                break  # it cannot depend on later hyperparameters
            if any(parent not in probe.active for probe in declaring):
                continue
            all_values = self.hyperparameters[parent].all_values or ()
            allowed = [probe.active[parent] for probe in declaring]
            values = tuple(value for value in all_values if value in allowed)
            if len(values) < len(all_values):
                conditions[parent] = values
        for probe in probes:
            holds = all(
                parent in probe.active and probe.active[parent] in values
                for parent, values in conditions.items()
            )
            if holds != (key in probe.declared):
                return {}
        return conditions

    def _completed(self) -> list[BuildProbe]:
        return [probe for probe in self._probes.values() if not probe.error]

    def _structural(self) -> list[HyperparameterKey]:
        """Return the hyperparameters of few values that change what is declared."""
        return [key for key in self.hyperparameters if self._is_structural(key)]

    def _is_structural(self, key: HyperparameterKey) -> bool:
        hp = self.hyperparameters[key]
        if hp.all_values is None or len(hp.all_values) < 2:
            return False
        first_values = self._first_values[key]
        neighbours = [
            probe
            for probe in self._completed()
            if key in probe.active
            and all(probe.inputs.get(n) == v for n, v in first_values.items() if n != hp.name)
            and set(probe.inputs) <= {*first_values, hp.name}
        ]
        return len({frozenset(probe.declared) for probe in neighbours}) > 1

    def _probe_until_complete(self) -> None:
        rng = random.Random(0)
        num_before = -1
        while num_before != len(self._probes) and len(self._probes) < _MAX_PROBES:
            num_before = len(self._probes)
            self._probe(self._assignment(lambda hp: hp.ends[0]))
            self._probe(self._assignment(lambda hp: hp.ends[-1]))
            for key, hp in list(self.hyperparameters.items()):
                self._probe_each(hp, hp.ends, self._first_values[key])
            # Each value of structural ones, beside each hyperparameter that may depend on it.
            for parent in self._structural():
                hp = self.hyperparameters[parent]
                for key in list(self.hyperparameters):
                    self._probe_each(hp, hp.all_values or (), self._first_values[key])
            if num_before != len(self._probes):
                for _ in range(_NUM_RANDOM):
                    self._probe(self._assignment(lambda hp: rng.choice(hp.all_values or hp.ends)))
        if len(self._probes) >= _MAX_PROBES:
            _log.warning(
                "the hypermodel was built %d times and still declares new hyperparameters: those "
                "of rarer combinations are not searched",
                _MAX_PROBES,
            )

    def _probe_each(
        self, hp: Hyperparameter, values: Iterable[Any], others: HyperparameterValues
    ) -> None:
        for value in values:
            self._probe({**others, hp.name: value})

    def _assignment(self, pick: Callable[[Hyperparameter], Any]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for hp in self.hyperparameters.values():
            if hp.active(values):
                values[hp.name] = pick(hp)
        return values

    def _probe(self, inputs: HyperparameterValues) -> None:
        text = _inputs_text(inputs)
        if text in self._probes or len(self._probes) >= _MAX_PROBES:
            return
        probe = self._probes[text] = probe_build(self._build, inputs)
        for key, hp in probe.declared.items():
            first = self.hyperparameters.setdefault(key, hp)
            if first.parameter != hp.parameter and key not in self._warned:
                self._warned.add(key)
                _log.warning(
                    "hyperparameter %r has values that depend on others; those of its first "
                    "declaration, %s, are searched, as in KerasTuner",
                    hp.name,
                    first.parameter,
                )
            opening = {name: values[0] for name, values in hp.conditions}
            values = inputs if key in probe.active else {**inputs, **opening}
            self._first_values.setdefault(key, values)


def _inputs_text(inputs: HyperparameterValues) -> str:
    return repr(sorted(inputs.items()))


def probe_build(build: Callable[[Any], Any], inputs: HyperparameterValues) -> BuildProbe:
    """Return what a build declares for some values and defaults for all others.

    Raises:
        InvalidSettingsError: With all hyperparameters that have no counterpart.
    """
    import keras  # late: loads TensorFlow
    import keras_tuner

    hps = keras_tuner.HyperParameters()
    hps.values = dict(inputs)
    build_error = None
    try:
        with keras.device("cpu"):  # this process reserves no GPU, whose memory is the trials'
            build(hps)
    except WorkloadError:
        raise  # the hypermodel is unsupported for any values
    except Exception as error:  # noqa: BLE001  some combinations cannot be built
        build_error = error
        _log.debug("building with %s raised %r", inputs, error)
    declared: dict[HyperparameterKey, Hyperparameter] = {}
    active: dict[HyperparameterKey, Any] = {}
    errors: list[ErrorDetail] = []
    for entry, record in zip(hps.space, hps.get_config()["space"], strict=True):
        try:
            hp = Hyperparameter.of(entry, record)
        except InvalidSettingsError as error:
            errors.extend(error.details)
            continue
        declared.setdefault(hp.key, hp)
        if hp.active(hps.values):
            active[hp.key] = hps.values[hp.name]
    if errors:
        raise InvalidSettingsError(errors)
    return BuildProbe(dict(inputs), declared, active, build_error)
