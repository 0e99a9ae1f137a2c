"""Which contents are still wanted by somebody."""

import pytest

from tune_tf.data.leased_actor import Leases


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
    leases.lease("images", "a")
    return leases


def test_a_content_stays_while_one_who_wants_it_is_heard(leases, clock):
    leases.lease("images", "b")
    for clock.now in (8, 16, 24):
        leases.beat("b")
        assert leases.expire() == []


def test_a_content_lapses_some_time_after_the_last_sign(leases, clock):
    clock.now = 10
    assert leases.expire() == []
    clock.now = 10.1
    assert leases.expire() == ["images"]


def test_a_lapsed_content_is_told_once(leases, clock):
    clock.now = 11
    leases.expire()
    assert leases.expire() == []


def test_a_new_lease_replaces_the_holders_former_lease(leases, clock):
    clock.now = 8
    leases.lease("texts", "b")
    clock.now = 12
    assert leases.expire() == ["images"]
    assert not leases.is_idle


def test_leases_are_idle_after_all_have_expired(leases, clock):
    assert not leases.is_idle
    clock.now = 11
    leases.expire()
    assert leases.is_idle
