"""Which contents are still wanted by somebody."""

import pytest

from tune_tf.data.prepare.leases import Leases


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def leases(clock):
    leases = Leases(keep_s=10, clock=clock)
    leases.want("images", "a")
    return leases


def test_a_content_stays_while_one_who_wants_it_is_heard(leases, clock):
    leases.want("images", "b")
    for clock.now in (8, 16, 24):
        leases.hear("b")
        assert leases.lapsed() == []


def test_a_content_lapses_some_time_after_the_last_sign(leases, clock):
    clock.now = 10
    assert leases.lapsed() == []
    clock.now = 10.1
    assert leases.lapsed() == ["images"]


def test_a_lapsed_content_is_told_once(leases, clock):
    clock.now = 11
    leases.lapsed()
    assert leases.lapsed() == []


def test_one_who_wants_something_else_keeps_only_that(leases, clock):
    clock.now = 8
    leases.want("texts", "b")
    clock.now = 12
    assert leases.lapsed() == ["images"]
    assert not leases.is_idle


def test_all_is_idle_once_nobody_is_heard(leases, clock):
    assert not leases.is_idle
    clock.now = 11
    leases.lapsed()
    assert leases.is_idle
