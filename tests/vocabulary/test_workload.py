"""A workload of which a mixin replaces some methods."""

from dataclasses import dataclass

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


def test_a_mixin_comes_before_the_class_of_a_copy_of_the_workload():
    mine = Mine(3)
    mixed = with_mixin(Doubled, mine, _factor=2)
    assert (mixed.load_data({}), mine.load_data({}), vars(mine)) == (6, 3, {"size": 3})
    assert type(mixed).train_step is Mine.train_step
    assert type(mixed).__name__ == "Mine"
