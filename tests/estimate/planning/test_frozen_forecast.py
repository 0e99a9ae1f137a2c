"""The forecast of shared outputs of frozen layers, and what a trial reports of them."""

from dataclasses import replace

import keras
import numpy as np
import pytest
from measured_trials import PROFILES, profiles_of

from tune_tf.config import SweepConfig
from tune_tf.data import Pipeline
from tune_tf.estimate.planning.measure_trials import TrialMeasurements
from tune_tf.estimate.planning.measured_sweep import forecast_frozen_layers
from tune_tf.estimate.planning.model_profiles import profile_workload_models
from tune_tf.estimate.sample_process import TrialUsage
from tune_tf.estimate.workload_sample import TrialSample
from tune_tf.forecast import Range
from tune_tf.result_keys import FROZEN_BYTES, FROZEN_LAYERS, WEIGHTS_DIFFER
from tune_tf.space import SearchSpace
from tune_tf.trainables import trainable
from tune_tf.workload import Data, Workload

layers = keras.layers
SPACE = SearchSpace.from_dict(
    {"batch_size": {"choice": [4, 16]}, "learning_rate": {"loguniform": [1e-3, 0.1]}}
)


def sweep(**settings):
    given = {
        "name": "small",
        "workload": "models:Mine",
        "objective": {"metric": "loss", "mode": "min"},
        "space": SPACE.to_dict(),
        "budget": {"num_samples": 4},
    }
    return SweepConfig.from_dict(given | settings)


class Heads(Workload):
    """Heads over a frozen encoder of sequences; ``policy`` is that of the encoder's numbers."""

    def __init__(self, seeds=(1, 2), policy="float32", as_pipeline=False):
        self._seeds, self._policy, self._as_pipeline = seeds, policy, as_pipeline

    def load_data(self, config):
        x = np.random.default_rng(0).integers(0, 9, (150, 10))
        parts = [(x[:100], x[:100, 0] % 3), (x[100:], x[100:, 0] % 3)]
        return Data(*map(Pipeline, parts)) if self._as_pipeline else Data(*parts)

    def build_model(self, config):
        first, second = (keras.initializers.GlorotUniform(seed) for seed in self._seeds)
        encoder = keras.Sequential(
            [
                layers.Embedding(9, 8, first, mask_zero=True),
                layers.GRU(
                    12,
                    "tanh",
                    kernel_initializer=second,
                    recurrent_initializer=second,
                    return_sequences=True,
                ),
            ]
        )
        for layer in encoder.layers:
            layer.dtype_policy = keras.dtype_policies.get(self._policy)
        encoder.trainable = False
        words = keras.Input((10,), dtype="int32")
        outputs = layers.Dense(3, "softmax")(layers.GlobalAveragePooling1D()(encoder(words)))
        model = keras.Model(words, outputs)
        rate = config["learning_rate"]
        model.compile(keras.optimizers.SGD(rate), "sparse_categorical_crossentropy")
        return model

    def global_batch_size(self, config):
        return config["batch_size"]


def forecast_of(workload, tmp_path, config=None, told=(), max_bytes=1e9):
    """Return the forecast from shapes and the numbers of rows."""
    profiles = profile_workload_models(workload, SPACE, 0, tmp_path / "building")
    _, counts = TrialSample(2, str(tmp_path)).cut(workload.load_data({}), batch_size=16)
    assert counts["num_rows"] < counts["total_rows"]
    measured = TrialMeasurements(1, (), {}, TrialUsage(0, None, **counts), 0.0, tuple(told))
    return forecast_frozen_layers(config or sweep(), profiles, measured, max_bytes)


@pytest.mark.tf
@pytest.mark.parametrize(
    "workload",
    [Heads(), Heads(policy="mixed_float16"), Heads(as_pipeline=True)],
    ids=["arrays", "half precision", "pipeline"],
)
def test_the_forecast_is_what_a_trial_reports(workload, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")  # as in the process that builds models
    forecast = forecast_of(workload, tmp_path)
    trial = trainable(workload, seed=1)(config={"batch_size": 4, "learning_rate": 0.01})
    result = trial.train()
    trial.stop()
    assert forecast.num_bytes is not None
    assert forecast.num_bytes.likely == result[FROZEN_BYTES]
    assert forecast.text.partition("outputs of ")[2] in result[FROZEN_LAYERS]


@pytest.mark.tf
def test_weights_that_follow_the_seed_are_found_by_a_second_build(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    forecast = forecast_of(Heads(seeds=(None, None)), tmp_path)
    assert forecast == (f"not shared: {WEIGHTS_DIFFER}", None)


def forecast_by_shapes(told=(), max_bytes=1e9, frozen=(100, "2 layers"), **settings):
    """Return the forecast of models with rows of 100 bytes; 7 rows train and 3 validate."""
    row_bytes, text = frozen
    models = [replace(each, frozen_row_bytes=row_bytes, frozen_layers=text) for each in PROFILES]
    usage = TrialUsage(0, None, num_rows=7, total_rows=7, validation_rows=3)
    measured = TrialMeasurements(1, (), {}, usage, 0.0, tuple(told))
    return forecast_frozen_layers(sweep(**settings), profiles_of(models), measured, max_bytes)


REASONS = {
    "share_frozen is false": {"share_frozen": False},
    "loop is fit": {"loop": "fit"},
    "parallelism model_parallel": {"parallelism": {"kind": "model_parallel"}},
    "parallelism asynchronous": {"parallelism": {"kind": "asynchronous"}},
    "per_example": {"told": ["not shared: per_example makes other rows in each epoch"]},
    "dense is trained": {"frozen": (None, "not shared: dense is trained")},
    "do not fit": {"max_bytes": 999},
}


@pytest.mark.parametrize("reason", REASONS)
def test_what_is_not_shared_has_its_reason(reason):
    forecast = forecast_by_shapes(**REASONS[reason])
    assert forecast.text.startswith("not shared: ")
    assert reason in forecast.text
    assert forecast.num_bytes is None


def test_validation_rows_count():
    assert forecast_by_shapes().num_bytes == Range.exactly(1000)


def test_some_trials_may_share_and_others_not():
    told = ["shared on this node: 70 B", "not shared: per_example makes other rows"]
    text, num_bytes = forecast_by_shapes(told)
    assert num_bytes == Range.exactly(1000)
    assert text.endswith("; in other trials not shared: per_example makes other rows")


def test_nothing_is_said_of_models_without_frozen_layers():
    assert forecast_by_shapes(frozen=(None, "")) == ("", None)


def test_of_models_with_other_layers_the_largest_is_told():
    large, small = (
        replace(each, frozen_row_bytes=size, frozen_layers=f"{size} layers")
        for each, size in zip(PROFILES, (8, 4), strict=True)
    )
    measured = TrialMeasurements(1, (), {}, TrialUsage(0, None, 9, 9), 0.0)
    found = forecast_frozen_layers(sweep(), profiles_of((large, small)), measured, 1e9)
    assert found.text.startswith("shared on each node: outputs of 8 layers with width=64, ")
    assert found.num_bytes == Range.of([4.0 * 9, 8.0 * 9, 8.0 * 9, 4.0 * 9])
