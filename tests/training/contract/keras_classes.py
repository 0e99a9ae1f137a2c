"""Keras classes with each of their numbers and switches varied, as cases of the contract."""

import copy
import functools
import inspect
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from keras_values import ALONGSIDE, NOT_BUILT, ORDINARY, REQUIRED, WORDS
from trials import Given

from tune_tf.data import rows_of
from tune_tf.training.seeds import seed_python_and_numpy
from tune_tf.workload import Config, Data

_layers, _schedules = keras.layers, keras.optimizers.schedules
_BASES: Mapping[str, tuple[Any, type]] = {
    "layers": (keras.layers, keras.layers.Layer),
    "losses": (keras.losses, keras.losses.Loss),
    "metrics": (keras.metrics, keras.metrics.Metric),
    "regularizers": (keras.regularizers, keras.regularizers.Regularizer),
    "constraints": (keras.constraints, keras.constraints.Constraint),
    "initializers": (keras.initializers, keras.initializers.Initializer),
    "optimizers": (keras.optimizers, keras.optimizers.Optimizer),
    "schedules": (_schedules, _schedules.LearningRateSchedule),
}


@dataclass(frozen=True)
class _Rows:
    """Input rows, and whether a layer takes several inputs as a list."""

    shape: tuple[int, ...]
    kind: str = "normal"
    num_inputs: int = 1
    as_list: bool = True


_VECTOR, _SEQUENCE, _IMAGE = _Rows((6,)), _Rows((5, 4)), _Rows((6, 6, 4))
_INPUTS = [
    _VECTOR,
    _SEQUENCE,
    _IMAGE,
    _Rows((4, 4, 4, 2)),
    _Rows((3, 4, 4, 2)),
    _Rows((3, 3, 3, 3, 2)),
    _Rows((6,), num_inputs=2),
    _Rows((5, 4), num_inputs=2),
    _Rows((5, 4), num_inputs=2, as_list=False),
    _Rows((6,), "ids"),
    _Rows((1,), "words"),
    _Rows((1,), "ids", num_inputs=2),
    _Rows((48,)),
]
_PREFERRED = {
    "CategoryEncoding": "ids",
    "Embedding": "ids",
    "HashedCrossing": "ids",
    "Hashing": "ids",
    "IntegerLookup": "ids",
    "ReversibleEmbedding": "ids",
    "StringLookup": "words",
    "TextVectorization": "words",
}
_ON_IMAGES = ("Random", "Aug", "Auto", "Rand", "Solar", "Equal", "Contrast", "Cut", "Mix", "Center")
NUM_ROWS = 20


@functools.cache
def _drawn(rows: _Rows, labels: str) -> Data:
    """Return a few random rows with one kind of labels."""
    rng = np.random.default_rng(0)
    shape = (NUM_ROWS, *rows.shape)
    x: Any = [
        {
            "normal": lambda: rng.normal(size=shape).astype("float32"),
            "image": lambda: rng.uniform(0, 1, shape).astype("float32"),
            "ids": lambda: rng.integers(0, 12, shape).astype("int32"),
            "words": lambda: rng.choice(np.array(WORDS, dtype="S1"), shape),
        }[rows.kind]()
        for _ in range(rows.num_inputs)
    ]
    x = x[0] if rows.num_inputs == 1 else tuple(x)
    classes = rng.integers(0, 3, NUM_ROWS).astype("int32")
    y = {
        "one-hot": np.eye(3, dtype="float32")[classes],
        "classes": classes,
        "sequences": rng.integers(1, 3, (NUM_ROWS, 2)).astype("int32"),
    }[labels]
    return Data(train=(x, y))


@dataclass(frozen=True)
class KerasSubject:
    """Keras class under test, and a model that contains it.

    Args:
        kind: Keras module, such as ``"layers"``.
        made: The class.
    """

    kind: str
    made: Any

    @property
    def name(self) -> str:
        """Name of the class, such as ``layers.Dense``."""
        return f"{self.kind}.{self.made.__name__}"

    @property
    def parameters(self) -> list[inspect.Parameter]:
        """Parameters of the constructor; for layers, also those common to all layers."""
        given = inspect.signature(self.made.__init__).parameters.values()
        named = [p for p in given if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)][1:]
        names = {p.name for p in named}
        if self.kind == "layers":
            named += [
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
                for name, default in (("trainable", True), ("dtype", None))
                if name not in names
            ]
        return named

    def values(self, parameter: inspect.Parameter) -> list[Any]:
        """Return other values of a number or a switch: all else is never shared by a graph."""
        usual = self._given(parameter.name).get(parameter.name, parameter.default)
        if isinstance(usual, bool):
            return [not usual]
        if isinstance(usual, float):
            return [0.5 * usual] if usual else [0.1, 0.3]
        if isinstance(usual, int):
            return [usual + 1]
        if parameter.name in ("clipnorm", "clipvalue", "global_clipnorm", "weight_decay"):
            return [0.01, 0.1]
        return [1, 2] if parameter.name == "seed" else []

    def arguments(self, config: Config) -> dict[str, Any]:
        """Return the constructor's arguments for a config of :meth:`configs`."""
        given = self._given(config.get("argument"))
        if "index" in config:
            parameter = next(p for p in self.parameters if p.name == config["argument"])
            given[parameter.name] = self.values(parameter)[config["index"]]
        return {name: _new(value) for name, value in given.items()}

    def _given(self, argument: str | None) -> dict[str, Any]:
        """Return the constructor's arguments other than the varied one."""
        names = {parameter.name for parameter in self.parameters}
        needed = {p.name: REQUIRED[p.name] for p in self.parameters if p.default is p.empty}
        given = needed | ORDINARY.get(self.made.__name__, {})
        beside = ALONGSIDE.get(argument or "", {})
        return given | {name: value for name, value in beside.items() if name in names}

    @functools.cached_property
    def workload(self) -> Given:
        """Workload of the class, with the first kind of rows that can be trained on.

        Raises:
            ValueError: The class trains on no kind of rows.
        """
        errors = []
        for rows, labels in self._problems():
            build = functools.partial(_build, self, rows, labels)
            workload = Given(build, _drawn(rows, labels))
            error = _error_of(workload, {})
            if error is None:
                return workload
            errors.append(f"{rows}, {labels}: {error!r}"[:160])
        raise ValueError(f"{self.name} trains on no rows:\n" + "\n".join(errors))

    def _problems(self) -> Iterator[tuple[_Rows, str]]:
        name = self.made.__name__
        if self.kind == "losses":
            yield from ((_VECTOR, labels) for labels in ("one-hot", "classes"))
            yield _SEQUENCE, "sequences"
        elif self.kind == "metrics":
            sparse = name.startswith("Sparse") or name in ("IoU", "MeanIoU", "BinaryIoU")
            yield from ((_VECTOR, x) for x in (["classes"] if sparse else ["one-hot", "classes"]))
        elif self.kind == "layers" and name.startswith(_ON_IMAGES):
            yield _Rows((6, 6, 3), "image"), "one-hot"
        elif self.kind == "layers":
            kind = _PREFERRED.get(name)
            yield from ((r, "one-hot") for r in _INPUTS if kind in (None, r.kind))
        else:
            yield (_Rows((8, 1)) if name == "STFT" else _VECTOR), "one-hot"

    def configs(self) -> list[dict[str, Any]]:
        """Return configs that vary one argument each, not all of which need to work."""
        found: list[dict[str, Any]] = [{}]
        for parameter in self.parameters:
            tried = [
                {"argument": parameter.name, "index": i} for i in range(len(self.values(parameter)))
            ]
            if tried and ALONGSIDE.get(parameter.name):
                found.append({"argument": parameter.name})  # its companion arguments alone
            found += tried
        return found

    def label(self, config: Config) -> str:
        """Return a description of a config."""
        if "index" not in config:
            return "default" if not config else f"default beside {config['argument']}"
        return f"{config['argument']}={self.arguments(config)[config['argument']]}"


def subjects() -> list[KerasSubject]:
    """Return all public Keras classes that the contract covers."""
    found = {
        (kind, made)
        for kind, (module, base) in _BASES.items()
        for name, made in vars(module).items()
        if inspect.isclass(made) and issubclass(made, base) and not name.startswith("_")
    }
    made = [KerasSubject(kind, made) for kind, made in found]
    return sorted((s for s in made if s.name not in NOT_BUILT), key=lambda s: s.name)


def _new(value: Any) -> Any:
    return value() if callable(value) else copy.deepcopy(value)


def _error_of(workload: Given, config: Config) -> Exception | None:
    """Return the error of training a config with Keras alone; None if it works."""
    import tensorflow as tf

    def train() -> Exception | None:
        seed_python_and_numpy(1)
        try:
            rows = rows_of(workload.load_data(config)).train
            batch = tf.nest.map_structure(lambda a: tf.constant(a[:8]), rows)
            model = workload.build_model(config)
            logs = model.train_step(batch)
            if not np.isfinite(float(logs["loss"])):
                return ValueError(f"the loss is {float(logs['loss'])}")
        except Exception as error:
            return error
        return None

    with ThreadPoolExecutor(max_workers=1) as thread, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return thread.submit(train).result()


def _build(subject: KerasSubject, rows: _Rows, labels: str, config: Config) -> keras.Model:
    """Return a small model that contains an object of the class."""
    made = subject.made(**subject.arguments(config))
    dense: dict[str, Any] = {}
    loss: Any = {"one-hot": "mse", "classes": "sparse_categorical_crossentropy"}.get(labels)
    optimizer: Any = keras.optimizers.SGD(0.1, momentum=0.9)
    hidden: Any = _layers.Dense(4, activation="tanh", name="first")
    if subject.kind in ("regularizers", "constraints", "initializers"):
        dense[f"kernel_{subject.kind.removesuffix('s')}"] = made
        hidden = _layers.Dense(6, name="first", **dense)
        if subject.made.__name__ == "STFT":
            hidden = _layers.Conv1D(6, 4, name="first", **dense)
    elif subject.kind == "losses":
        loss = made
    elif subject.kind == "optimizers":
        optimizer = made
    elif subject.kind == "schedules":
        optimizer = keras.optimizers.SGD(made, momentum=0.9)
    dtype = {"ids": "int32", "words": "string"}.get(rows.kind, "float32")
    inputs = [keras.Input(rows.shape, dtype=dtype) for _ in range(rows.num_inputs)]
    if subject.kind == "layers":
        called = _layers.RNN(made) if subject.name.endswith(("Cell", "Cells")) else made
        given = inputs if rows.num_inputs > 1 else inputs[0]
        outputs = called(given) if rows.as_list else called(*inputs)
    else:
        outputs = hidden(inputs[0])
    parts = [keras.ops.cast(part, "float32") for part in keras.tree.flatten(outputs)]
    flat = [_layers.Flatten()(part) for part in parts]
    joined = flat[0] if len(flat) == 1 else _layers.Concatenate()(flat)
    if labels == "sequences":
        out = _layers.Reshape((5, 3))(_layers.Dense(15)(joined))
    else:
        out = _layers.Dense(3, activation="softmax", name="last")(joined)
    if subject.made.__name__ == "BinaryIoU":
        out = _layers.Dense(1, activation="sigmoid", name="binary")(out)
        loss = "binary_crossentropy"
    model = keras.Model(inputs if rows.num_inputs > 1 else inputs[0], out)
    metrics = [made] if subject.kind == "metrics" else None
    model.compile(optimizer, loss, metrics=metrics)
    return model
