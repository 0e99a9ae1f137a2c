"""Heads over a frozen backbone, which is computed once per node, in each epoch or by hand.

Trials train heads of other learning rates over a frozen MobileNetV2 on pictures of 96 x 96. Its
weights are drawn once and read from a file, as pretrained ones are. ``by_hand`` computes its
outputs in ``load_data``, and its models are the heads alone.
"""

import argparse
import os
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")

import keras
import numpy as np
import ray
from measuring.interleaved import take_turns
from measuring.rate_sweep import NUM_CPUS, RateSweep
from measuring.summary import Target, print_summary, print_table

from tune_tf import Data, Workload, trainable
from tune_tf.workload import Config

_SEED = 7
_TARGETS = {
    "unshared_over_shared": Target(30),
    "shared_over_by_hand": Target(1.5, "at most"),
}


def backbone(side: int) -> keras.Model:
    """Return a MobileNetV2 without weights and without a head."""
    model: keras.Model = keras.applications.MobileNetV2(
        input_shape=(side, side, 3), include_top=False, weights=None, pooling="avg"
    )
    return model


class Heads(Workload):
    """Workload whose models are heads over a frozen backbone.

    Args:
        weights: File of the backbone's weights.
        by_hand: Whether ``load_data`` computes the backbone's outputs.
    """

    def __init__(self, weights: str, num_pictures: int, side: int, by_hand: bool) -> None:
        self._weights, self._by_hand = weights, by_hand
        self._num_pictures, self._side = num_pictures, side

    def _backbone(self) -> keras.Model:
        model = backbone(self._side)
        model.load_weights(self._weights)
        model.trainable = False
        return model

    def load_data(self, config: Config) -> Data:
        """Return random pictures, or the backbone's outputs for them."""
        rng = np.random.default_rng(_SEED)
        shape = (self._num_pictures, self._side, self._side, 3)
        x, y = rng.random(shape, np.float32), rng.integers(0, 5, self._num_pictures)
        if self._by_hand:
            x = self._backbone().predict(x, batch_size=64, verbose=0)
        cut = len(x) * 4 // 5
        return Data((x[:cut], y[:cut]), (x[cut:], y[cut:]))

    def build_model(self, config: Config) -> keras.Model:
        """Return a compiled model."""
        if self._by_hand:
            x = features = keras.Input((1280,))
        else:
            x = keras.Input((self._side, self._side, 3))
            features = self._backbone()(x)
        seeds = (keras.initializers.GlorotUniform(seed) for seed in (1, 2))
        hidden = keras.layers.Dense(32, "relu", kernel_initializer=next(seeds))(features)
        model = keras.Model(x, keras.layers.Dense(5, kernel_initializer=next(seeds))(hidden))
        model.compile(
            keras.optimizers.Adam(config["learning_rate"]),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
        return model


def main() -> None:
    """Time all in turns and print the summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smoke run: few and small")
    parser.add_argument("--num-rounds", type=int, default=2, help="sweeps of each contestant")
    parser.add_argument("--num-trials", type=int, default=64)
    parser.add_argument("--num-unshared", type=int, default=4, help="trials of the slow contestant")
    parser.add_argument("--num-epochs", type=int, default=10)
    given = parser.parse_args()
    num_pictures, side = 512, 96
    if given.quick:
        given.num_rounds, given.num_trials, given.num_unshared, given.num_epochs = 1, 4, 2, 2
        num_pictures, side = 40, 32
    ray.init(
        address="local",
        num_cpus=NUM_CPUS,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    with tempfile.TemporaryDirectory() as folder:
        weights = str(Path(folder, "backbone.weights.h5"))
        keras.utils.set_random_seed(_SEED)
        backbone(side).save_weights(weights)

        def sweep(num_trials: int, *, by_hand: bool = False, **settings: Any) -> RateSweep:
            workload = Heads(weights, num_pictures, side, by_hand)
            make = partial(trainable, workload, seed=_SEED, **settings)
            return RateSweep(make, base_rate=1e-5, num_epochs=given.num_epochs, num=num_trials)

        sweeps = {
            "shared": sweep(given.num_trials),
            "by_hand": sweep(given.num_trials, by_hand=True),
            "unshared": sweep(given.num_unshared, share_frozen=False),
        }
        timings = take_turns(sweeps, num_rounds=given.num_rounds)
    ray.shutdown()
    for name in ("by_hand", "unshared"):
        for rate, loss in sweeps[name].losses.items():
            np.testing.assert_allclose(sweeps["shared"].losses[rate], loss, rtol=1e-5)
    # Of the unshared sweep, only the time of its trials is multiplied, not that of its start.
    more = given.num_trials - given.num_unshared
    unshared_s = timings.median_s("unshared") + more * sweeps["unshared"].trial_s / NUM_CPUS
    ratios = {
        "unshared_over_shared": unshared_s / timings.median_s("shared"),
        "shared_over_by_hand": timings.ratio("shared", "by_hand").median,
    }
    print_table(
        (f"{given.num_trials} trials of {given.num_epochs} epochs", "seconds"),
        [(name, f"{timings.median_s(name):.1f}") for name in ("shared", "by_hand")]
        + [(f"unshared, of which {given.num_unshared} run", f"{unshared_s:.0f}")],
    )
    print_summary("frozen_prefix", ratios, _TARGETS)


if __name__ == "__main__":
    main()
