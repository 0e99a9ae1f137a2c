"""A workload of which a mixin replaces some methods."""

from dataclasses import dataclass

import pytest

from tune_tf import Workload
from tune_tf.workload import with_mixin


@dataclass(frozen=True)
class Mine(Workload):
    size: int

    def load_data(self, config):
        return self.size

    def build_model(self, config):
        raise NotImplementedError

    def train_step(self, model, batch):
        return {"loss": 0.0}


class Doubled:
    def load_data(self, config):
        return self._factor * super().load_data(config)


@pytest.fixture
def mixed():
    return with_mixin(Doubled, Mine(3), _factor=2)


def test_the_mixin_comes_before_the_workloads_own_class(mixed):
    assert mixed.load_data({}) == 6


def test_what_else_the_workload_replaces_is_still_seen(mixed):
    assert type(mixed).train_step is Mine.train_step
    assert type(mixed).__name__ == "Mine"


def test_the_workload_stays_as_it_is():
    mine = Mine(3)
    with_mixin(Doubled, mine, _factor=2)
    assert mine.load_data({}) == 3
    assert vars(mine) == {"size": 3}
