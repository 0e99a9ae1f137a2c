"""Workload of a KerasTuner hypermodel."""

import copy
import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import Any

from tune_tf.errors import InvalidSettingsError, WorkloadError
from tune_tf.extras import install_command
from tune_tf.space import SearchSpace
from tune_tf.space.paths import SEPARATOR
from tune_tf.workload import Config, Data, Workload
from tune_tf.workloads.keras_tuner.fit_recorder import FitRecorder
from tune_tf.workloads.keras_tuner.hypermodel_space import (
    HypermodelSpace,
    find_hyperparameters,
    hypermodel_space,
)

_log = logging.getLogger(__name__)

_BATCH_SIZE = 32  # the default of keras.Model.fit


def from_hypermodel(
    hypermodel: Any,
    data: Data | Callable[[Config], Data],
    *,
    probes: Iterable[Mapping[str, Any]] = (),
    hyperparameters: Any = None,
    tune_new_entries: bool = True,
    **fit_arguments: Any,
) -> "HypermodelWorkload":
    """Return a workload with a search space from an unmodified KerasTuner hypermodel.

    Search it with ``tune_tf.search(from_hypermodel(...), objective=..., trials=...)``. Conditional
    scopes become conditions; what a Python ``if`` or loop declares is always searched, as in
    KerasTuner. Names become paths: ``.`` becomes ``_``, and a name that has different values in two
    scopes gets the suffix ``-2``.

    Args:
        hypermodel: A ``keras_tuner.HyperModel`` or a function from ``HyperParameters`` to a
            compiled model. Its ``fit`` may prepare the arguments of ``model.fit``.
        data: The data sets, or a function from a config to them.
        probes: Values by hyperparameter name that reveal hyperparameters which builds would miss,
            such as those behind two rare choices.
        hyperparameters: As in ``keras_tuner.Tuner``: ``HyperParameters`` that replace those of the
            hypermodel with the same name.
        tune_new_entries: As in ``keras_tuner.Tuner``: False to search ``hyperparameters`` only.
        fit_arguments: Arguments of ``Tuner.search`` other than data, such as ``batch_size=64``.

    Raises:
        InvalidSettingsError: KerasTuner is not installed, or an argument is of the wrong type.
        WorkloadError: ``keras.Model.fit`` has no such argument, or a trial has no counterpart.
    """
    try:
        import keras_tuner  # late: loads TensorFlow
    except ImportError as error:
        text = f"hypermodels need KerasTuner ({error}): {install_command('keras-tuner')}"
        raise InvalidSettingsError([text]) from error
    errors = []
    is_function = callable(hypermodel) and not isinstance(hypermodel, type)
    if not isinstance(hypermodel, keras_tuner.HyperModel) and not is_function:
        errors.append(
            "hypermodel must be a keras_tuner.HyperModel or a function from HyperParameters to "
            f"a compiled model, not {hypermodel!r}"
        )
    if not isinstance(data, Data) and not callable(data):
        errors.append(
            "data must be tune_tf.Data(train=(x, y), validation=(x, y)) or a function from a "
            f"config to it, not {type(data).__name__}"
        )
    if not tune_new_entries and not hyperparameters:
        errors.append("tune_new_entries=False needs hyperparameters=hp, whose entries are searched")
    if errors:
        raise InvalidSettingsError(errors)
    if not isinstance(hypermodel, keras_tuner.HyperModel):
        build, hypermodel = hypermodel, keras_tuner.HyperModel()
        hypermodel.build = build
    if type(hypermodel).fit is keras_tuner.HyperModel.fit:
        FitRecorder(type(hypermodel).__name__).fit(**fit_arguments)
    return HypermodelWorkload(
        hypermodel, data, tuple(map(dict, probes)), hyperparameters, tune_new_entries, fit_arguments
    )


class HypermodelWorkload(Workload):
    """KerasTuner hypermodel with its data, made by :func:`from_hypermodel`.

    Its space is found by several builds when it is first used or when it is pickled, so never in
    trials.
    """

    def __init__(
        self,
        hypermodel: Any,
        data: Data | Callable[[Config], Data],
        probes: Sequence[Mapping[str, Any]],
        hyperparameters: Any,
        tune_new_entries: bool,
        fit_arguments: Mapping[str, Any],
    ) -> None:
        self._hypermodel = hypermodel
        self.data = data
        self._probes = tuple(probes)
        self._hyperparameters = hyperparameters
        self._tune_new_entries = tune_new_entries
        self._fit_arguments = dict(fit_arguments)
        self._loaded: Data | None = None  # by the function of the data, without test rows
        self._first_loaded: Data | None = None  # to find the hyperparameters of fit

    def __getstate__(self) -> dict[str, Any]:
        """Pickle with the space and without the data that finding it needed."""
        return vars(self) | {"_found": self._found, "_first_loaded": None}

    @property
    def model_function(self) -> Any:
        """The hypermodel, or the function that it was given as, which names the workload."""
        is_wrapped = type(self._hypermodel).__name__ == "HyperModel"  # by from_hypermodel
        return self._hypermodel.build if is_wrapped else self._hypermodel

    @property
    def space(self) -> SearchSpace:
        """Search space of the hypermodel.

        Raises:
            InvalidSettingsError: A hyperparameter has no counterpart.
            WorkloadError: The hypermodel cannot be built with its defaults, or its ``fit`` has a
                custom training loop.
        """
        return self._found.space

    def build_model(self, config: Config) -> Any:
        """Return the hypermodel's model for a trial's values."""
        return self._hypermodel.build(self._hyperparameters_of(config))

    def load_data(self, config: Config) -> Data:
        """Return the data that the hypermodel's ``fit`` passes to ``model.fit``."""
        data = self.data
        if not isinstance(data, Data):
            data = data(config)
            self._loaded = replace(data, test=None)
        arguments = self._fit_arguments_of(config)
        x, y, weights = (arguments.get(name) for name in ("x", "y", "sample_weight"))
        train: Any = (x, y) if weights is None else (x, y, weights)
        if y is None and weights is None:
            train = x  # a data set
        return Data(
            train=_arrays(train),
            validation=_arrays(arguments.get("validation_data")),
            test=data.test,
            class_weight=arguments.get("class_weight"),
        )

    def global_batch_size(self, config: Config) -> int:
        """Return the batch size passed to ``model.fit``, by default Keras' 32."""
        return int(self._fit_arguments_of(config).get("batch_size") or _BATCH_SIZE)

    def shuffle(self, config: Config) -> bool:
        """Return whether ``model.fit`` shuffles the rows in every epoch."""
        return bool(self._fit_arguments_of(config).get("shuffle", True))

    def callbacks(self, config: Config) -> Sequence[Any]:
        """Return the callbacks passed to ``model.fit``, and one that stops after its ``epochs``."""
        import keras

        arguments = self._fit_arguments_of(config)
        callbacks: list[Any] = keras.tree.flatten(arguments.get("callbacks") or [])
        num_epochs = arguments.get("epochs")
        return [*callbacks, _last_epoch(num_epochs)] if num_epochs else callbacks

    @functools.cached_property
    def _found(self) -> HypermodelSpace:
        _spare_gpus()
        space = hypermodel_space(find_hyperparameters(self._declare, self._probes))
        if not space.records:
            text = "the hypermodel declares no hyperparameters (with tunable=False it exposes none)"
            raise InvalidSettingsError([f"{text}: there is nothing to search"])
        return space

    def _declare(self, hps: Any) -> None:
        """Let the hypermodel declare its hyperparameters, including those of ``fit``."""
        import keras_tuner

        if self._hyperparameters:
            hps.merge(self._hyperparameters, overwrite=False)
        hps = hps if self._tune_new_entries else hps.copy()
        self._hypermodel.declare_hyperparameters(hps)
        model = self._hypermodel.build(hps)
        if not getattr(model, "compiled", True):
            raise WorkloadError("the hypermodel does not compile its model: compile in build")
        if type(self._hypermodel).fit is not keras_tuner.HyperModel.fit:
            data = self.data if isinstance(self.data, Data) else self._first_loaded
            if data is None:
                data = self._first_loaded = self.data(dict(hps.values))  # type: ignore[operator]
            self._record_fit(hps, data)

    def _hyperparameters_of(self, config: Config) -> Any:
        """Return the ``HyperParameters`` of a trial."""
        import keras_tuner  # late: loads TensorFlow

        records = copy.deepcopy(list(self._found.records))
        hps = keras_tuner.HyperParameters.from_config({"space": records, "values": {}})
        hps.values = TrialValues(config, self._found.paths, hps, warns=self._tune_new_entries)
        return hps if self._tune_new_entries else hps.copy()

    def _fit_arguments_of(self, config: Config) -> dict[str, Any]:
        data = self.data if isinstance(self.data, Data) else self._loaded
        return self._record_fit(self._hyperparameters_of(config), data or self.data(config))  # type: ignore[operator]

    def _record_fit(self, hps: Any, data: Data) -> dict[str, Any]:
        """Return the arguments that the hypermodel's ``fit`` passes to ``model.fit``."""
        train = data.train if isinstance(data.train, tuple) else (data.train,)
        options = {
            "validation_data": data.validation,
            "class_weight": data.class_weight,
            "sample_weight": train[2] if len(train) == 3 else None,
        }
        options = {name: value for name, value in options.items() if value is not None}
        # Callbacks have state, so each trial needs copies, as in KerasTuner.
        options |= {"callbacks": [], **copy.deepcopy(self._fit_arguments)}
        model = FitRecorder(type(self._hypermodel).__name__)
        model.check_returned(self._hypermodel.fit(hps, model, *train[:2], **options))
        return model.arguments


class TrialValues(MutableMapping[str, Any]):
    """Values of active hyperparameters by KerasTuner name, read lazily from the config.

    Values that the hypermodel does not request are not read, so that data are reloaded only if a
    value that they depend on changes. None in the config means inactive, as in Ray's random
    search; an active hyperparameter that the config lacks has KerasTuner's default.
    """

    def __init__(
        self, config: Config, paths: Mapping[str, tuple[str, ...]], hps: Any, *, warns: bool
    ) -> None:
        self._stored: dict[str, Any] = {}
        self._config = config
        self._paths = paths
        self._hyperparameters = tuple(hps.space)
        self._warns = warns

    def __getitem__(self, name: str) -> Any:
        """Return a value; raise KeyError if it is inactive or unknown."""
        if name in self._stored:
            return self._stored[name]
        for path in self._paths.get(name, ()):
            value = _value_at(self._config, path)
            if value is not None:
                return value
        for hp in self._hyperparameters:
            if hp.name == name and all(each.is_active(self) for each in hp.conditions):
                return hp.default
        raise KeyError(name)

    def __setitem__(self, name: str, value: Any) -> None:
        """Store a value that KerasTuner sets: the default of a hyperparameter that was missed."""
        if self._warns and name not in self._paths:
            _log.warning(
                "hyperparameter %r is not in the search space and keeps its default %r: no build "
                "declared it; pass from_hypermodel(probes=[{...}]) with values under which it is",
                name,
                value,
            )
        self._stored[name] = value

    def __delitem__(self, name: str) -> None:
        """Remove a stored value."""
        del self._stored[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of active hyperparameters."""
        yield from (name for name in {**self._paths, **self._stored} if name in self)

    def __len__(self) -> int:
        """Return the number of active hyperparameters."""
        return sum(1 for _ in self)


def _value_at(config: Mapping[str, Any], path: str) -> Any:
    value: Any = config
    for name in path.split(SEPARATOR):
        if not isinstance(value, Mapping) or name not in value:
            return None
        value = value[name]
    return value


def _arrays(rows: Any) -> Any:
    import keras

    def array(leaf: Any) -> Any:
        return keras.ops.convert_to_numpy(leaf) if keras.ops.is_tensor(leaf) else leaf

    return keras.tree.map_structure(array, rows) if isinstance(rows, tuple) else rows


def _last_epoch(num_epochs: int) -> Any:
    import keras

    class LastEpoch(keras.callbacks.Callback):  # inside the function because keras loads late
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if epoch + 1 >= num_epochs:
                self.model.stop_training = True

    return LastEpoch()


def _spare_gpus() -> None:
    """Limit the GPU memory that builds outside of trials take to what they need."""
    import tensorflow as tf

    for gpu in tf.config.list_physical_devices("GPU"):
        try:
            tf.config.experimental.set_memory_growth(gpu, True)
        except RuntimeError:
            return  # TensorFlow is already initialized and has reserved its memory
