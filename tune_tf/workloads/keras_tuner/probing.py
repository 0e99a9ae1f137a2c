"""Discovery of all hyperparameters of a KerasTuner build by repeated builds.

A build declares a hyperparameter by requesting its value, so one behind a Python ``if`` or in a
longer loop appears only when the code reaches it.
"""

import logging
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
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
    """Hyperparameters declared by one build.

    Args:
        asked: The values given to the build.
        declared: Declared hyperparameters, active or not.
        taken: Values of the active hyperparameters.
        error: Exception that the build raised, if any.
    """

    asked: HyperparameterValues
    declared: Mapping[HyperparameterKey, Hyperparameter]
    taken: Mapping[HyperparameterKey, Any]
    error: Exception | None = None

    @property
    def values(self) -> dict[str, Any]:
        """Values of the active hyperparameters, by name."""
        return {name: value for (name, _), value in self.taken.items()}


@dataclass
class Probing:
    """Search for all hyperparameters that builds declare.

    It builds with the defaults; all lowest and all highest values; each option of each choice and
    both ends of each range, one by one, together with the values under which it first appeared;
    each value of an integer that changes what is declared; and a few random sets. It repeats this
    until nothing new appears.

    Args:
        build: Declares hyperparameters on a ``keras_tuner.HyperParameters``.
        asked: Additional sets of values to build with.

    Raises:
        WorkloadError: The build fails with the defaults or with one of the sets in ``asked``.
        InvalidSettingsError: Hyperparameters have no counterpart.
    """

    build: Callable[[Any], Any]
    asked: Iterable[HyperparameterValues] = ()
    found: dict[HyperparameterKey, Hyperparameter] = field(default_factory=dict)
    probes: list[BuildProbe] = field(default_factory=list)
    _done: set[str] = field(default_factory=set)
    _warned: set[HyperparameterKey] = field(default_factory=set)
    _first_values: dict[HyperparameterKey, HyperparameterValues] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Probe until nothing new appears."""
        for values in ({}, *self.asked):
            self._probe(values)
            if (error := self.probes[-1].error) is not None:
                given = f"with {values}" if values else "with the defaults of all hyperparameters"
                raise WorkloadError(
                    f"building the hypermodel {given} raised {type(error).__name__}: {error}"
                ) from error
        rng = random.Random(0)
        before = -1
        while before != len(self._done) and len(self.probes) < _MAX_PROBES:
            before = len(self._done)
            self._probe(self._assignment(lambda hp: hp.ends[0]))
            self._probe(self._assignment(lambda hp: hp.ends[-1]))
            for key in list(self.found):
                self._try_each(key, self.found[key].ends, self._first_values[key])
            self._try_structural()
            if before != len(self._done):
                for _ in range(_NUM_RANDOM):
                    self._probe(self._assignment(lambda hp: rng.choice(hp.all_values or hp.ends)))
        if len(self.probes) >= _MAX_PROBES:
            _log.warning(
                "the hypermodel was built %d times and still declares new hyperparameters: those "
                "of rarer combinations are not searched",
                _MAX_PROBES,
            )

    @property
    def structural(self) -> list[HyperparameterKey]:
        """Hyperparameters of few values that change what is declared."""
        return [key for key in self.found if self._is_structural(key)]

    def inferred(self, key: HyperparameterKey) -> dict[HyperparameterKey, tuple[Any, ...]]:
        """Return the values of others, outside scopes, under which a hyperparameter is declared.

        An example is ``units_3`` in ``for i in range(hp.Int("layers", 1, 4))``. Returns nothing if
        the observed builds contradict each other; the hyperparameter is then always searched, as in
        KerasTuner.
        """
        hp = self.found[key]
        due = [each for each in self.probes if not each.error and hp.active(each.values)]
        declaring = [each for each in due if key in each.declared]
        if len(declaring) == len(due):
            return {}
        conditions: dict[HyperparameterKey, tuple[Any, ...]] = {}
        for parent in self.structural:
            if parent == key:
                break  # it cannot depend on later hyperparameters
            all_values = self.found[parent].all_values
            if all_values is None or any(parent not in each.taken for each in declaring):
                continue
            seen = [each.taken[parent] for each in declaring]
            parent_values = tuple(value for value in all_values if value in seen)
            if len(parent_values) < len(all_values):
                conditions[parent] = parent_values
        agree = all(
            (key in each.declared)
            == all(
                p in each.taken and each.taken[p] in parent_values
                for p, parent_values in conditions.items()
            )
            for each in due
        )
        return conditions if agree else {}

    def _is_structural(self, key: HyperparameterKey) -> bool:
        hp = self.found[key]
        listed = hp.all_values
        if listed is None or len(listed) < 2:
            return False
        first_values = self._first_values[key]
        beside = [
            each
            for each in self.probes
            if not each.error
            and key in each.taken
            and all(each.asked.get(n) == v for n, v in first_values.items() if n != hp.name)
            and set(each.asked) <= {*first_values, hp.name}
        ]
        return len({frozenset(each.declared) for each in beside}) > 1

    def _try_structural(self) -> None:
        """Build with each value of structural hyperparameters, beside each possible dependent."""
        for parent in self.structural:
            values = self.found[parent].all_values or ()
            for key in list(self.found):
                self._try_each(parent, values, self._first_values[key])

    def _try_each(
        self, key: HyperparameterKey, values: Iterable[Any], beside: HyperparameterValues
    ) -> None:
        for value in values:
            self._probe({**beside, key[0]: value})

    def _assignment(self, pick: Callable[[Hyperparameter], Any]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for hp in self.found.values():
            if hp.active(values):
                values[hp.name] = pick(hp)
        return values

    def _probe(self, asked: HyperparameterValues) -> None:
        text = repr(sorted(asked.items()))
        if text in self._done or len(self.probes) >= _MAX_PROBES:
            return
        self._done.add(text)
        probe = probe_build(self.build, asked)
        self.probes.append(probe)
        for key, hp in probe.declared.items():
            known = self.found.setdefault(key, hp)
            if known.parameter != hp.parameter and key not in self._warned:
                self._warned.add(key)
                _log.warning(
                    "hyperparameter %r has values that depend on others; those of its first "
                    "declaration, %s, are searched, as in KerasTuner",
                    hp.name,
                    known.parameter,
                )
            opened = {name: values[0] for name, values in hp.conditions}
            reached = asked if key in probe.taken else {**asked, **opened}
            self._first_values.setdefault(key, reached)


def probe_build(build: Callable[[Any], Any], asked: HyperparameterValues) -> BuildProbe:
    """Return what a build declares for some values and defaults for all others.

    Raises:
        InvalidSettingsError: With all hyperparameters that have no counterpart.
    """
    import keras_tuner  # late: loads TensorFlow

    hps = keras_tuner.HyperParameters()
    hps.values = dict(asked)
    error = None
    try:
        build(hps)
    except WorkloadError:
        raise  # the hypermodel is unsupported for any values
    except Exception as raised:  # noqa: BLE001  some combinations cannot be built
        error = raised
        _log.debug("building with %s raised %r", asked, raised)
    declared: dict[HyperparameterKey, Hyperparameter] = {}
    taken: dict[HyperparameterKey, Any] = {}
    errors: list[ErrorDetail] = []
    for hp, record in zip(hps.space, hps.get_config()["space"], strict=True):
        try:
            made = Hyperparameter.of(hp, record)
        except InvalidSettingsError as detail:
            errors.extend(detail.details)
            continue
        declared.setdefault(made.key, made)
        if made.active(hps.values):
            taken[made.key] = hps.values[made.name]
    if errors:
        raise InvalidSettingsError(errors)
    return BuildProbe(dict(asked), declared, taken, error)
