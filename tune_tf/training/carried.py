"""A Python float that a traced program reads anew at every call.

Keras keeps most hyperparameters (momentum, weight decay, a dropout rate, ...) as Python floats,
which tracing turns into constants. A :class:`CarriedFloat` stands in their place: its number lives
in a float64 variable, so one traced program serves every value.
"""

import numbers
import operator
from collections.abc import Callable
from typing import Any, ClassVar

import tensorflow as tf

Thunk = Callable[[], tf.Tensor]


class CarriedFloat(float):
    """A float whose number is read from a variable when a traced program runs.

    Arithmetic with Python numbers stays lazy and in float64, as Python would do it, and is cast to
    the tensor's type where a tensor is met; so results are those of the plain float. Comparisons
    and truth use the value of the moment, at trace time: a program is shared only by values on the
    same side of such a switch (see ``structure.py``).

    The C double inside is NaN and ``float()`` raises: code that takes the number behind our back
    gives NaN or an error, never a stale number.

    Args:
        value: The number now, for comparisons.
        read: Makes the float64 tensor to use.
    """

    dtype: ClassVar[type] = float  # Keras promotes types by this: a weak Python float
    _value: float
    _read: Thunk
    _derived: "dict[tuple[Any, ...], CarriedFloat]"
    _cast: dict[tuple[int, str, tf.DType], tf.Tensor]

    def __new__(cls, value: float, read: Thunk) -> "CarriedFloat":
        """Make a float that holds NaN where C code looks for its number."""
        self = super().__new__(cls, float("nan"))
        self._value = value
        self._read = read
        self._derived = {}
        self._cast = {}
        return self

    @classmethod
    def of_variable(cls, value: float, variable: tf.Variable) -> "CarriedFloat":
        """Make one that reads ``variable`` (float64, scalar)."""
        return cls(value, variable.read_value)

    def __tf_tensor__(self, dtype: tf.DType | None = None, name: str | None = None) -> tf.Tensor:
        """Convert to a tensor of ``dtype``; float32 unless said, like a Python float.

        A graph reads and casts once on each device, however many variables an optimizer updates
        with the number: under a strategy each replica reads its own copy.
        """
        dtype = dtype or tf.float32
        if tf.executing_eagerly():
            return tf.cast(self._read(), dtype, name=name)
        device = tf.constant(0).device if tf.distribute.has_strategy() else ""
        # The tensor keeps its graph alive, so no other one gets that id.
        key = (id(tf.compat.v1.get_default_graph()), device, dtype)
        if key not in self._cast:
            self._cast[key] = tf.cast(self._read(), dtype)
        return self._cast[key]

    def __float__(self) -> float:
        """Refuse to leave the graph."""
        raise TypeError("a carried hyperparameter has no fixed value inside a traced program")

    __int__ = __float__  # type: ignore[assignment]
    __trunc__ = __float__  # type: ignore[assignment]

    def __bool__(self) -> bool:
        """Return whether the value of the moment is not zero."""
        return bool(self._value)

    def __repr__(self) -> str:
        """Return the value of the moment, marked."""
        return f"CarriedFloat({self._value!r})"

    def __hash__(self) -> int:
        """Hash by identity: the value changes."""
        return id(self)

    def _apply(self, op: Callable[..., Any], other: Any, *, swapped: bool) -> Any:
        def pick(first: Any, second: Any) -> Any:
            return op(second, first) if swapped else op(first, second)

        if isinstance(other, CarriedFloat):
            value = pick(self._value, other._value)  # noqa: SLF001  of its own kind
            read = other._read  # noqa: SLF001
            return CarriedFloat(value, lambda: pick(self._read(), read()))
        if isinstance(other, numbers.Real):
            number = float(other)
            key = (op, number, swapped)
            if key not in self._derived:
                self._derived[key] = CarriedFloat(
                    pick(self._value, number),
                    lambda: pick(self._read(), tf.constant(number, tf.float64)),
                )
            return self._derived[key]
        tensor = tf.convert_to_tensor(other)
        return pick(self.__tf_tensor__(tensor.dtype), tensor)

    def __neg__(self) -> "CarriedFloat":
        """Return the negated value, still carried."""
        return CarriedFloat(-self._value, lambda: -self._read())

    def __pos__(self) -> "CarriedFloat":
        """Return itself."""
        return self

    def __abs__(self) -> "CarriedFloat":
        """Return the absolute value, still carried."""
        return CarriedFloat(abs(self._value), lambda: tf.abs(self._read()))


def _arithmetic(op: Callable[..., Any], *, swapped: bool) -> Callable[[CarriedFloat, Any], Any]:
    return lambda self, other: self._apply(op, other, swapped=swapped)


def _comparison(op: Callable[[Any, Any], bool]) -> Callable[[CarriedFloat, Any], Any]:
    def compare(self: CarriedFloat, other: Any) -> Any:
        if isinstance(other, CarriedFloat):
            return op(self._value, other._value)  # noqa: SLF001
        if isinstance(other, numbers.Real):
            return op(self._value, other)
        return NotImplemented

    return compare


for _name in ("add", "sub", "mul", "truediv", "pow"):
    _op = getattr(operator, _name)
    setattr(CarriedFloat, f"__{_name}__", _arithmetic(_op, swapped=False))
    setattr(CarriedFloat, f"__r{_name}__", _arithmetic(_op, swapped=True))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(CarriedFloat, f"__{_name}__", _comparison(getattr(operator, _name)))
