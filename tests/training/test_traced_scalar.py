"""A float that a traced program reads anew: whatever is asked of it holds for what it serves."""

import copy
import math
import pickle

import pytest

from tune_tf.training.scalars import Scalar
from tune_tf.training.traced_scalar import TracedFloat, TracedScalars


class Owner:
    def __init__(self, rate):
        self.rate = rate


def asked(number, ask):
    """Return what is answered to a question about a carried number, and its scalars."""
    owner = Owner(number)
    scalars = TracedScalars([number])
    with scalars.in_graph([[Scalar(owner, "rate")]]):
        answer = ask(owner.rate)
        if isinstance(answer, TracedFloat):
            answer = None  # still carried
    assert owner.rate == number
    return answer, scalars


OWN = [
    name
    for name, member in vars(float).items()
    if callable(member)
    and not isinstance(member, (staticmethod, classmethod))
    and name not in ("__new__", "__getattribute__", "__getformat__", "fromhex", "from_number")
]


def questions():
    """Return each method of a float with arguments that it takes."""
    for name in OWN:
        for others in ((), (0.3,), (2,), (".1f",)):
            try:
                is_taken = getattr(0.5, name)(*others) is not NotImplemented
            except (TypeError, ValueError):
                is_taken = False
            if not is_taken:
                continue
            yield pytest.param(name, others, id=f"{name}{others}")


@pytest.mark.parametrize(("name", "others"), list(questions()))
@pytest.mark.parametrize("other", [0.3, 0.34, 0.8, 2.0, -1.0, 0.0])
def test_an_answer_holds_for_all_numbers_that_are_served(name, others, other):
    def ask(number):
        return getattr(number, name)(*others)

    answer, scalars = asked(0.3, ask)

    if answer is None:
        return
    assert answer == ask(0.3)
    assert scalars.are_valid_for([0.3])
    if scalars.are_valid_for([other]):
        assert answer == ask(other)


def test_all_methods_of_a_float_are_asked():
    asked_for = {param.values[0] for param in questions()}

    assert set(OWN) - asked_for == set()
    assert len(asked_for) > 35


@pytest.mark.parametrize(
    "ask",
    [
        copy.copy,
        copy.deepcopy,
        lambda number: pickle.loads(pickle.dumps(number)),
        str,
        "{:.2f}".format,
        lambda number: number.real,
        lambda number: number.conjugate(),
        lambda number: {0.3: "found"}.get(number),
        lambda number: number in {0.3, 0.4},
        lambda number: 7.0 // number,
        lambda number: number % number,
        lambda number: round(number, 1) == 0.3,
        lambda number: max(number, 0.1),
        math.floor,
    ],
)
def test_operations_on_a_traced_scalar_equal_those_on_its_number(ask):
    answer, scalars = asked(0.3, ask)

    if answer is not None:
        assert answer == ask(0.3)
        assert type(answer) is type(ask(0.3))
    assert scalars.are_valid_for([0.3])
