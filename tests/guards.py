"""Cases of a test: those that guard every change, and the others, which run with all tests."""

import functools

import pytest

slow = functools.partial(pytest.param, marks=pytest.mark.slow)
"""A case that runs with all tests only; its values are the arguments."""


def guarded(cases, guards):
    """Return the cases as parameters; those that are no guards are marked as slow."""
    cases = list(cases)
    assert all(guard in cases for guard in guards), "a guard is no case"
    return [case if case in guards else slow(case) for case in cases]
