"""Float hyperparameters that a traced program reads at every call.

Tracing turns Keras' hyperparameters (momentum, a dropout rate, ...), Python floats, into constants.
Only while a graph is traced, a :class:`TracedFloat` that reads a variable replaces each one.
"""

import contextlib
import numbers
import operator
import types
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar

import tensorflow as tf

from tune_tf.training.scalars import Scalar

_OF_OBJECTS = ("__new__", "__getattribute__")

Thunk = Callable[[], tf.Tensor]


class TracedFloat(float):
    """Float that a traced program reads from a variable at run time.

    Arithmetic with Python numbers is lazy and in float64 and is cast to the type of a tensor
    operand, so results equal those of the plain float. Comparisons and truth tests use the value at
    trace time and are recorded; values share the program only if all recorded results are the same.
    After other float operations (text, hash, rounding), only equal values share the program.

    The C double is NaN, so C code that reads it directly gives NaN instead of a stale number.

    Args:
        number: Returns the current number, for comparisons.
        read: Returns the float64 tensor to use.
        comparisons: List that receives a check per comparison, true while its result is the same.
    """

    dtype: ClassVar[type] = float  # Keras promotes types by this: a weakly typed Python float
    _number: Callable[[], float]
    _read: Thunk
    _comparisons: list[Callable[[], bool]]
    _derived: "dict[tuple[Any, ...], TracedFloat]"
    _cast: dict[tuple[int, str, tf.DType], tf.Tensor]

    def __new__(
        cls, number: Callable[[], float], read: Thunk, comparisons: list[Callable[[], bool]]
    ) -> "TracedFloat":
        """Create a float."""
        self = super().__new__(cls, float("nan"))
        self._number = number
        self._read = read
        self._comparisons = comparisons
        self._derived = {}
        self._cast = {}
        return self

    def __tf_tensor__(self, dtype: tf.DType | None = None, name: str | None = None) -> tf.Tensor:
        """Convert to a tensor of ``dtype``, by default float32 like a Python float.

        A graph reads and casts once per device, for any number of variables that an optimizer
        updates. Under a strategy, each replica reads its copy.
        """
        dtype = dtype or tf.float32
        if tf.executing_eagerly():
            return tf.cast(self._read(), dtype, name=name)
        device = tf.constant(0).device if tf.distribute.has_strategy() else ""
        # The tensor keeps its graph alive, so no other graph gets the same id.
        key = (id(tf.compat.v1.get_default_graph()), device, dtype)
        if key not in self._cast:
            self._cast[key] = tf.cast(self._read(), dtype)
        return self._cast[key]

    def __bool__(self) -> bool:
        """Return whether the current value is not zero."""
        return bool(self._compared(operator.ne, lambda: 0.0))

    def _apply(self, op: Callable[..., Any], other: Any, *, swapped: bool) -> Any:
        def pick(first: Any, second: Any) -> Any:
            return op(second, first) if swapped else op(first, second)

        if isinstance(other, TracedFloat):
            number, read = other._number, other._read  # noqa: SLF001  same class
            return TracedFloat(
                lambda: pick(self._number(), number()),
                lambda: pick(self._read(), read()),
                self._comparisons,
            )
        if isinstance(other, numbers.Real):
            plain = float(other)
            key = (op, plain, swapped)
            if key not in self._derived:
                self._derived[key] = TracedFloat(
                    lambda: pick(self._number(), plain),
                    lambda: pick(self._read(), tf.constant(plain, tf.float64)),
                    self._comparisons,
                )
            return self._derived[key]
        tensor = tf.convert_to_tensor(other)
        return pick(self.__tf_tensor__(tensor.dtype), tensor)

    def __neg__(self) -> Any:
        """Return the negative number."""
        return self._apply(operator.mul, -1.0, swapped=False)

    @property
    def real(self) -> "TracedFloat":
        """Itself."""
        return self

    def __reduce__(self) -> tuple[type[float], tuple[float]]:
        """Copy and pickle as a plain float."""
        return float, (self._fixed(),)

    def _compared(self, op: Callable[[Any, Any], Any], other: Callable[[], float]) -> Any:
        number, outcome = self._number, op(self._number(), other())
        self._comparisons.append(lambda: op(number(), other()) == outcome)
        return outcome

    def _fixed(self) -> float:
        """Return the current value and make the trace depend on it."""
        number = self._number()
        self._compared(operator.eq, lambda: number)
        return number


def _arithmetic(op: Callable[..., Any], *, swapped: bool) -> Callable[[TracedFloat, Any], Any]:
    return lambda self, other: self._apply(op, other, swapped=swapped)


def _comparison(op: Callable[[Any, Any], bool]) -> Callable[[TracedFloat, Any], Any]:
    def compare(self: TracedFloat, other: Any) -> Any:
        if isinstance(other, TracedFloat):
            return self._compared(op, other._number)  # noqa: SLF001
        if isinstance(other, numbers.Real):
            return self._compared(op, lambda: float(other))
        return NotImplemented

    return compare


def _plain_float_method(name: str) -> Callable[..., Any]:
    method = getattr(float, name)

    def answer(self: TracedFloat, *others: Any) -> Any:
        plain = (each._fixed() if isinstance(each, TracedFloat) else each for each in others)  # noqa: SLF001
        return method(self._fixed(), *plain)

    return answer


for _name in ("add", "sub", "mul", "truediv", "pow"):
    _op = getattr(operator, _name)
    setattr(TracedFloat, f"__{_name}__", _arithmetic(_op, swapped=False))
    setattr(TracedFloat, f"__r{_name}__", _arithmetic(_op, swapped=True))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(TracedFloat, f"__{_name}__", _comparison(getattr(operator, _name)))
for _name, _member in vars(float).items():  # such as rounding, text and hash
    is_of_class = isinstance(_member, staticmethod | types.ClassMethodDescriptorType)
    if callable(_member) and not is_of_class and _name not in (*vars(TracedFloat), *_OF_OBJECTS):
        setattr(TracedFloat, _name, _plain_float_method(_name))


class TracedScalars:
    """Numbers of a graph, and the variables from which it reads them.

    Args:
        numbers: Values of the scalars of the model that is traced.
    """

    def __init__(self, numbers: Sequence[float] = ()) -> None:
        self._numbers = list(numbers)
        #: Variables that hold the numbers.
        self.variables = [
            tf.Variable(number, dtype=tf.float64, trainable=False) for number in numbers
        ]
        self._comparisons: list[Callable[[], bool]] = []
        self._floats = [
            TracedFloat(partial(self._number, i), variable.read_value, self._comparisons)
            for i, variable in enumerate(self.variables)
        ]

    @contextlib.contextmanager
    def in_graph(self, by_copy: Sequence[Sequence[Scalar]]) -> Iterator[None]:
        """Replace the scalars by traced floats in this context.

        Args:
            by_copy: For each number, its scalar in every copy of the model.
        """
        pairs = list(zip(by_copy, self._floats, strict=True)) if self._floats else []
        plain = [
            (*each, getattr(each.owner, each.attribute)) for copies, _ in pairs for each in copies
        ]
        for scalars, traced in pairs:
            for owner, attribute in scalars:
                setattr(owner, attribute, traced)
        try:
            yield
        finally:
            for owner, attribute, value in plain:
                setattr(owner, attribute, value)

    def are_valid_for(self, numbers: Sequence[float]) -> bool:
        """Return whether tracing a model with other numbers would give the same graph."""
        before, self._numbers = self._numbers, list(numbers)
        try:
            return all(is_same() for is_same in self._comparisons)
        finally:
            self._numbers = before

    def assign(self, numbers: Sequence[float]) -> None:
        """Set the numbers that the graph reads."""
        self._numbers = list(numbers)
        for variable, number in zip(self.variables, numbers, strict=True):
            variable.assign(number)

    def _number(self, index: int) -> float:
        return self._numbers[index]
