"""Workload of a KerasTuner hypermodel."""

import copy
import functools
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tune_tf.errors import InvalidSettingsError
from tune_tf.extras import missing_extra
from tune_tf.space import SearchSpace
from tune_tf.space.paths import SEPARATOR, flatten
from tune_tf.workload import Config, Data
from tune_tf.workloads.function_workload import FunctionWorkload
from tune_tf.workloads.keras_tuner.fit_recorder import fit_arguments as recorded
from tune_tf.workloads.keras_tuner.hypermodel_space import find_hyperparameters, hypermodel_space

_log = logging.getLogger(__name__)


def from_hypermodel(
    hypermodel: Any,
    data: Data | Callable[[Config], Data],
    **fit_arguments: Any,
) -> "HypermodelWorkload":
    """Return a workload with a search space from an unmodified KerasTuner hypermodel.

    Search it with ``tune_tf.search(from_hypermodel(...), objective=..., trials=...)``. Conditional
    scopes become conditions; what a Python ``if`` or loop declares is always searched, as in
    KerasTuner. A ``space`` of your own may change or omit parameters, which then keep their
    defaults.

    Args:
        hypermodel: A ``keras_tuner.HyperModel`` or a function from ``HyperParameters`` to a
            compiled model. Its ``fit`` may prepare the arguments of ``model.fit``.
        data: The data sets, or a function from a config to them.
        fit_arguments: Arguments of ``Tuner.search`` other than data, such as ``batch_size=64``.

    Raises:
        InvalidSettingsError: KerasTuner is not installed, or an argument is of the wrong type.
        WorkloadError: ``keras.Model.fit`` has no such argument, or a trial has no counterpart.
    """
    if missing := missing_extra("keras-tuner"):
        raise InvalidSettingsError([f"hypermodels need {missing}"])
    import keras_tuner  # late: loads TensorFlow

    is_function = callable(hypermodel) and not isinstance(hypermodel, type)
    if not isinstance(hypermodel, keras_tuner.HyperModel) and not is_function:
        raise InvalidSettingsError(
            "hypermodel must be a keras_tuner.HyperModel or a function from HyperParameters to "
            f"a compiled model, not {hypermodel!r}"
        )
    if not isinstance(data, Data) and not callable(data):
        raise InvalidSettingsError(
            "data must be tune_tf.Data(train=(x, y), validation=(x, y)) or a function from a "
            f"config to it, not {type(data).__name__}"
        )
    if getattr(type(hypermodel), "fit", None) in (None, keras_tuner.HyperModel.fit):
        recorded(lambda model: model.fit(**fit_arguments))
    return HypermodelWorkload(hypermodel, data, fit_arguments)


class HypermodelWorkload(FunctionWorkload):
    """KerasTuner hypermodel with its data, made by :func:`from_hypermodel`.

    Its space is found by several builds when it is first used or when it is pickled, so never in
    trials.
    """

    def __init__(self, hypermodel: Any, data: Any, fit_arguments: Mapping[str, Any]) -> None:
        import keras_tuner

        super().__init__(hypermodel, data)
        self._hypermodel = hypermodel
        if not isinstance(hypermodel, keras_tuner.HyperModel):
            self._hypermodel = keras_tuner.HyperModel()
            self._hypermodel.build = hypermodel
        self._fit_arguments = dict(fit_arguments)
        self._loaded: Data | None = None  # without test rows

    def __getstate__(self) -> dict[str, Any]:
        """Pickle with the hyperparameters."""
        return {"_declared": self._declared, **vars(self)}

    @functools.cached_property
    def space(self) -> SearchSpace:
        """Search space of the hypermodel.

        Raises:
            InvalidSettingsError: A hyperparameter has no counterpart.
            WorkloadError: The hypermodel cannot be built with its defaults, or its ``fit`` has a
                custom training loop.
        """
        return hypermodel_space(self._declared)

    def build_model(self, config: Config) -> Any:
        """Return the hypermodel's model for a trial's values."""
        hps = self._hyperparameters_of(config)
        active = {hp.name: hps.values[hp.name] for hp in hps.space if hps.is_active(hp)}
        given = {name: value for name, value in flatten(config).items() if value is not None}
        hps.values.update(active | given)  # for copies of them
        return self._hypermodel.build(hps)

    def load_data(self, config: Config) -> Data:
        """Return the data that the hypermodel's ``fit`` passes to ``model.fit``."""
        import keras

        data = super().load_data(config)
        if data is not self.data:
            self._loaded = replace(data, test=None)
        arguments = self._fit_arguments_of(config)
        parts = (arguments.get(name) for name in ("x", "y", "sample_weight"))
        train = keras.utils.pack_x_y_sample_weight(*parts)  # x alone is a data set
        validation, class_weight = arguments.get("validation_data"), arguments.get("class_weight")
        return Data(train, validation, data.test, class_weight=class_weight)

    def global_batch_size(self, config: Config) -> int:
        """Return the batch size passed to ``model.fit``, by default Keras' 32."""
        return int(self._fit_arguments_of(config).get("batch_size") or 32)

    def shuffle(self, config: Config) -> bool:
        """Return whether ``model.fit`` shuffles the rows in every epoch."""
        return bool(self._fit_arguments_of(config).get("shuffle", True))

    def callbacks(self, config: Config) -> Sequence[Any]:
        """Return the callbacks passed to ``model.fit``."""
        import keras

        return tuple(keras.tree.flatten(self._fit_arguments_of(config).get("callbacks") or ()))

    @functools.cached_property
    def _declared(self) -> Any:
        """``HyperParameters`` that are searched."""
        # TensorFlow would take the whole memory of the GPUs, which is the trials'.
        os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
        declared = find_hyperparameters(self._declare)
        self._loaded = None  # only builds needed it
        return declared

    def _declare(self, hps: Any) -> None:
        """Let the hypermodel declare its hyperparameters, including those of ``fit``."""
        import keras_tuner

        self._hypermodel.declare_hyperparameters(hps)
        self._hypermodel.build(hps)
        if type(self._hypermodel).fit is not keras_tuner.HyperModel.fit:
            self._loaded = self._loaded or super().load_data(dict(hps.values))
            self._record_fit(hps, {})

    def _hyperparameters_of(self, config: Config) -> Any:
        """Return the ``HyperParameters`` of a trial."""
        hps = self._declared.copy()
        hps.values = TrialValues(config, hps)
        return hps

    def _fit_arguments_of(self, config: Config) -> dict[str, Any]:
        return self._record_fit(self._hyperparameters_of(config), config)

    def _record_fit(self, hps: Any, config: Config) -> dict[str, Any]:
        """Return the arguments that the hypermodel's ``fit`` passes to ``model.fit``."""
        data = self._loaded or super().load_data(config)
        train = data.train if isinstance(data.train, tuple) else (data.train,)
        options = {
            "validation_data": data.validation,
            "class_weight": data.class_weight,
            "sample_weight": train[2] if len(train) == 3 else None,
        }
        options = {name: value for name, value in options.items() if value is not None}
        # Callbacks have state, so each trial needs copies, as in KerasTuner.
        options |= {"callbacks": [], **copy.deepcopy(self._fit_arguments)}
        return recorded(lambda model: self._hypermodel.fit(hps, model, *train[:2], **options))


class TrialValues(dict[str, Any]):
    """Values of hyperparameters by name, each read from the config when it is asked for.

    So data are loaded again only if a value that they depend on changes. None in the config means
    inactive, as in Ray's random search; a hyperparameter that the config lacks has KerasTuner's
    default.
    """

    def __init__(self, config: Config, hps: Any) -> None:
        super().__init__()
        self._config = config
        self._defaults = {hp.name: hp.default for hp in hps.space}

    def __contains__(self, name: object) -> bool:
        """Return whether the config has a value."""
        return super().__contains__(name) or self._read(str(name)) is not None

    def __missing__(self, name: str) -> Any:
        """Return a value of the config, or the default of a hyperparameter that it lacks."""
        value = self._read(name)
        value = self._defaults[name] if value is None else value
        super().__setitem__(name, value)
        return value

    def __setitem__(self, name: str, value: Any) -> None:
        """Store the default of a hyperparameter that no build declared."""
        if name not in self._defaults:
            _log.warning(
                "hyperparameter %r is not in the search space and keeps its default %r: no build "
                "declared it; add it to the space",
                name,
                value,
            )
        super().__setitem__(name, value)

    def _read(self, name: str) -> Any:
        value: Any = self._config
        for part in name.split(SEPARATOR):
            if not isinstance(value, Mapping) or part not in value:
                return None
            value = value[part]
        return value
