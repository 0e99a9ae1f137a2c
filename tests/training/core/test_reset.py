"""A reused loop gives a trial the numbers of a fresh process."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import keras
import numpy as np
import pytest
from exactness_cases import LazyModel
from trials import Given, bits, draw, run, run_fresh

from tune_tf.training.core.loop import GraphLoop

pytestmark = pytest.mark.tf
layers = keras.layers

A = {"rate": 0.01, "dropout": 0.3, "l2": 0.01, "decay": 0.1, "clip": 0.5, "width": 8}
B = {"rate": 0.02, "dropout": 0.5, "l2": 0.002, "decay": 0.3, "clip": 0.2, "width": 8}


def build(config):
    """Build a model with everything that holds state."""
    model = keras.Sequential(
        [
            keras.Input((6,)),
            layers.Dense(
                config["width"],
                activation="relu",
                kernel_regularizer=keras.regularizers.L2(config["l2"]),
            ),
            layers.BatchNormalization(synchronized=True),
            layers.Dropout(config["dropout"]),
            layers.Dense(3),
        ]
    )
    model.compile(
        keras.optimizers.AdamW(
            config["rate"],
            weight_decay=config["decay"],
            global_clipnorm=config["clip"],
            use_ema=True,
        ),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy", keras.metrics.SparseTopKCategoricalAccuracy(2)],
    )
    return model


@pytest.fixture(scope="module")
def workload():
    return Given(build, draw(45, 19))


@pytest.mark.parametrize("num_replicas", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_trial_after_another_is_the_trial_of_a_fresh_loop_bit_for_bit(
    num_replicas, replicas_of, workload
):
    replicas = replicas_of(num_replicas)
    loop = GraphLoop(replicas)
    first, second, again = (
        bits(run(loop, workload, config, seed)) for config, seed in ((A, 1), (B, 2), (A, 1))
    )

    assert second == bits(run_fresh(workload, replicas, B, 2))
    assert again == first
    assert first != second
    assert loop.num_programs == 1


@pytest.mark.slow
def test_trials_of_another_structure_in_between_change_nothing(replicas_of, workload):
    loop = GraphLoop(replicas_of(1))
    first, _, again = (bits(run(loop, workload, config, 1)) for config in (A, A | {"width": 4}, A))

    assert again == first
    assert loop.num_programs == 2


@pytest.mark.slow
def test_a_trial_that_stopped_early_leaves_nothing_to_the_next(replicas_of, workload):
    loop = GraphLoop(replicas_of(1))
    run(loop, workload, A, 1, epochs=1)

    assert bits(run(loop, workload, B, 2)) == bits(run_fresh(workload, replicas_of(1), B, 2))


@pytest.mark.slow
def test_other_rows_of_the_same_shape_need_no_trace(replicas_of):
    class Changing(Given):
        def load_data(self, config):
            data = draw(45, 19)
            data.train[0][:] *= config["scale"]
            return data

    workload = Changing(lambda config: build(A), None)
    loop = GraphLoop(replicas_of(1))
    run(loop, workload, {"scale": 1.0})

    assert bits(run(loop, workload, {"scale": 2.0})) == bits(
        run_fresh(workload, replicas_of(1), {"scale": 2.0})
    )
    assert loop.num_programs == 1


def test_a_model_without_a_key_is_traced_for_each_trial(replicas_of):
    def lazy(config):
        model = LazyModel()
        model.generator = np.random.default_rng(0)
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model

    workload = Given(lazy, draw(45))
    loop = GraphLoop(replicas_of(1))
    first, second = (bits(run(loop, workload, {}, 1)) for _ in range(2))

    assert first == second
    assert loop.num_programs == 2


def test_loss_scaling_starts_anew(replicas_of):
    def half(config):
        with_policy = {"dtype": "mixed_float16"}
        model = keras.Sequential(
            [keras.Input((6,)), layers.Dense(8, **with_policy), layers.Dense(3, dtype="float32")]
        )
        optimizer = keras.optimizers.LossScaleOptimizer(
            keras.optimizers.Adam(0.01, clipnorm=config["clip"]), dynamic_growth_steps=4
        )
        model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model

    workload = Given(half, draw(45))
    loop = GraphLoop(replicas_of(1))
    run(loop, workload, {"clip": 0.5}, 1)

    assert bits(run(loop, workload, {"clip": 0.1}, 2)) == bits(
        run_fresh(workload, replicas_of(1), {"clip": 0.1}, 2)
    )
    assert loop.num_programs == 1


PROCESS = """
    import json, sys
    sys.path[:0] = [sys.argv[1], sys.argv[1] + "/core"]
    import tensorflow as tf
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.experimental.enable_op_determinism()
    from test_reset import A, B, build
    from trials import Given, draw, run
    from tune_tf.training.devices import Devices
    from tune_tf.training.core.loop import GraphLoop
    from tune_tf.training.core.replicas import Replicas

    tf.random.set_seed(0)  # operations without a seed of their own want one
    workload = Given(build, draw(45, 19))
    loop = GraphLoop(Replicas(Devices(("CPU:0",))))
    for name in sys.argv[2]:
        history, _ = run(loop, workload, {"A": A, "B": B}[name], seed=ord(name))
    print(json.dumps([{k: v.hex() for k, v in metrics.items()} for metrics in history]))
"""


def _in_a_process(trials):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROCESS), str(Path(__file__).parents[1]), trials],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_a_second_trial_equals_that_of_a_fresh_process_bit_for_bit():
    assert _in_a_process("AB") == _in_a_process("B")


def test_seeds_tell_trials_apart(replicas_of, workload):
    loop = GraphLoop(replicas_of(1))
    first, second = (run(loop, workload, A, seed, epochs=1) for seed in (1, 2))

    assert not np.array_equal(first[1][0], second[1][0])
