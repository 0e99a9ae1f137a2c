"""The digits, ready to use."""

import numpy as np
import pytest
from keras import optimizers

from tune_tf.workloads.digits import DigitsCNN, DigitsMLP
from tune_tf.workloads.head import make_optimizer


def test_the_rows_are_split_without_overlap():
    data = DigitsMLP().load_data({})
    images = [x.reshape(len(x), -1) for x, _ in (data.train, data.validation, data.test)]

    assert [len(x) for x in images] == [1079, 359, 359]
    assert all(x.min() >= 0 and x.max() <= 1 and x.dtype == np.float32 for x in images)
    assert {label for _, y in (data.train, data.test) for label in y} == set(range(10))


@pytest.mark.parametrize(
    ("workload", "config", "num_weights"),
    [
        pytest.param(DigitsMLP(), {}, 64 * 128 + 128 + 128 * 10 + 10, id="mlp"),
        pytest.param(
            DigitsMLP(),
            {"width": 8, "num_layers": 2},
            64 * 8 + 8 + 8 * 8 + 8 + 8 * 10 + 10,
            id="deep",
        ),
        pytest.param(
            DigitsCNN(),
            {"filters": 2, "width": 3},
            (9 * 2 + 2) + (9 * 2 * 4 + 4) + (16 * 3 + 3) + (3 * 10 + 10),
            id="cnn",
        ),
        pytest.param(
            DigitsCNN(),
            {"filters": 2, "width": 3, "batch_norm": True},
            (9 * 2 + 2) + 4 * 2 + (9 * 2 * 4 + 4) + 4 * 4 + (16 * 3 + 3) + (3 * 10 + 10),
            id="cnn with batch normalization",
        ),
    ],
)
def test_a_model_has_the_size_that_its_config_says(workload, config, num_weights):
    model = workload.build_model(config)

    assert model.compiled
    assert model.count_params() == num_weights


@pytest.mark.parametrize(
    ("config", "kind", "expected"),
    [
        pytest.param({}, optimizers.Adam, {"learning_rate": 1e-3}, id="nothing"),
        pytest.param(
            {"optimizer": "sgd", "momentum": 0.9, "learning_rate": 0.1},
            optimizers.SGD,
            {"momentum": 0.9, "learning_rate": 0.1},
            id="sgd",
        ),
        pytest.param(
            {"optimizer": "adamw", "weight_decay": 0.1, "clipnorm": 2},
            optimizers.AdamW,
            {"weight_decay": 0.1, "clipnorm": 2.0},
            id="adamw",
        ),
        pytest.param({"optimizer": "rmsprop"}, optimizers.RMSprop, {"momentum": 0.0}, id="rmsprop"),
        pytest.param({"optimizer": "lion"}, optimizers.Lion, {"learning_rate": 1e-3}, id="lion"),
    ],
)
def test_an_optimizer_is_made_of_a_config(config, kind, expected):
    made = make_optimizer(config)

    assert type(made) is kind
    assert {key: made.get_config()[key] for key in expected} == pytest.approx(expected)


def test_an_unknown_optimizer_is_told():
    with pytest.raises(ValueError, match=r"Could not interpret optimizer .*'adams'"):
        make_optimizer({"optimizer": "adams"})
