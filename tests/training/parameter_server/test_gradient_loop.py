"""Which training steps a worker of a parameter server refuses; the contract has its numbers."""

import numpy as np
import pytest
from trials import Given, begin, dense_model, draw

from tune_tf.errors import WorkloadError
from tune_tf.parallelism import Mirrored
from tune_tf.training.parameter_server.gradient_loop import GradientLoop
from tune_tf.training.parameter_server.tasks import Task

pytestmark = pytest.mark.tf


class Stepping(Given):
    """A workload whose training step is given.

    Args:
        step: Takes the model and a batch.
    """

    def __init__(self, step):
        super().__init__(dense_model, draw(16))
        self._step = step

    def train_step(self, model, batch):
        return self._step(model, batch)


def never(model, batch):
    return {"loss": model.compute_loss(*batch, model(batch[0]))}


def twice(model, batch):
    for _ in range(2):
        model.train_step(batch)
    return model.get_metrics_result()


def without_a_loss(model, batch):
    model.train_step(batch)
    return {"accuracy": 1.0}


@pytest.mark.parametrize(
    ("step", "message"),
    [
        pytest.param(never, r"never calls model\.optimizer\.apply", id="never"),
        pytest.param(twice, "more than once per batch", id="twice"),
        pytest.param(without_a_loss, "returned accuracy but no loss", id="no-loss"),
    ],
)
def test_a_step_whose_gradients_cannot_be_caught_is_refused(step, message, replicas_of):
    workload = Stepping(step)
    loop = begin(GradientLoop(replicas_of(1), Mirrored()), workload)
    with pytest.raises(WorkloadError, match=message):
        loop.do(Task(0, np.arange(4, dtype=np.int32), 0, {}))
