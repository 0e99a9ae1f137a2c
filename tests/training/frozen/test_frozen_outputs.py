"""Frozen layers are computed once; a trial's numbers are those of the whole model."""

import keras
import numpy as np
import pytest
from frozen_models import (
    NOT_SHARED,
    SHARED,
    backbone,
    compiled,
    head,
    images,
    inline,
    masked,
    nested,
    pretrained,
    tokens,
)
from frozen_trials import ChangesWeights, ChangesWeightsEachTime, Counted, loop_with
from guards import guarded, slow
from trials import ByTape, Given, begin, furthest, run

from tune_tf.data import rows_of
from tune_tf.result_keys import FROZEN_LAYERS
from tune_tf.training.checkpoint import Checkpoint
from tune_tf.training.frozen import frozen_outputs
from tune_tf.training.input.device_rows import place_rows

pytestmark = pytest.mark.tf


def both(workload, replicas, config=None, **spread):
    """Return a trial with shared outputs, the same trial without, and the first one's loop."""
    loop = loop_with(workload, replicas, Counted(), **spread)
    shared = run(loop, workload, config, epochs=2)
    return shared, run(loop_with(workload, replicas, **spread), workload, config, epochs=2), loop


def find(loop, workload, config=None, **given):
    """Return the layers that a new trial skips, and why it skips none."""
    trial = begin(loop, workload, config, **given).trial
    skipped = loop._frozen.find(workload, trial.program.model, trial.inputs.rows)
    return skipped, loop._frozen.obstacle


GUARDS = ["nested", "masked", "two inputs"]


@pytest.mark.parametrize("name", guarded(SHARED, GUARDS))
def test_a_trial_has_the_numbers_of_the_whole_model(name, replicas_of):
    build, data = SHARED[name]
    shared, whole, loop = both(Given(build, data()), replicas_of(1))
    assert loop.performance[FROZEN_LAYERS].startswith("shared on this node: ")
    assert furthest(shared, whole) < 1e-6


@pytest.mark.parametrize("name", NOT_SHARED)
def test_layers_that_may_change_are_not_skipped(name, replicas_of, caplog):
    build, reason = NOT_SHARED[name]
    caplog.set_level("INFO", "tune_tf")
    frozen_outputs._log_once.cache_clear()
    workload = Given(build, images())
    skipped, obstacle = find(loop_with(workload, replicas_of(1), Counted()), workload)
    assert skipped is None
    assert reason in caplog.text
    assert (obstacle == "") == (name == "little saved")


@pytest.mark.parametrize(
    ("num_replicas", "spread"), [(2, {}), slow(3, {}), slow(1, {"micro_batches": 3})], ids=str
)
def test_replicas_and_micro_batches_share(num_replicas, spread, replicas_of):
    data = images(weights=True)
    shared, whole, loop = both(Given(nested, data), replicas_of(num_replicas), **spread)
    assert loop.performance[FROZEN_LAYERS].startswith("shared")
    assert furthest(shared, whole) < 1e-6


@pytest.mark.slow
def test_xla(replicas_of):
    def build(config):
        model = nested(config)
        model.jit_compile = True
        return model

    shared, whole, loop = both(Given(build, images()), replicas_of(1))
    assert loop.performance[FROZEN_LAYERS].startswith("shared")
    assert furthest(shared, whole) < 1e-5


@pytest.mark.parametrize(
    ("build", "data"), [(nested, images), slow(masked, tokens)], ids=["nested", "recurrent"]
)
def test_trials_of_other_heads_share_one_computation(build, data, replicas_of):
    cache, workload = Counted(), Given(build, data())
    loop = loop_with(workload, replicas_of(1), cache)
    plain = loop_with(workload, replicas_of(1))
    for seed, config in enumerate([{"lr": 0.01}, {"lr": 0.1, "rate": 0.5}]):
        shared = run(loop, workload, config, seed, epochs=1)
        whole = run(plain, workload, config, seed, epochs=1)
        assert furthest(shared, whole) < 1e-6
    assert cache.num_computed == 1


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"scale": 1.0}, {"scale": 2.0}),
        ({"weights": 1}, {"weights": 2}),
        ({"rows": 1}, {"rows": 2}),
    ],
    ids=str,
)
def test_what_changes_the_outputs_gets_its_own(first, second, replicas_of):
    def build(config):
        image = keras.Input((8, 8, 3))
        base = pretrained(backbone(), config.get("weights", 0))
        x = base(keras.layers.Rescaling(config.get("scale", 1.0))(image))
        features = keras.layers.GlobalAveragePooling2D()(x)
        return compiled(keras.Model(image, head(features, config)), config)

    class Changing(Given):
        def load_data(self, config):
            data = images()
            return data if config.get("rows", 1) == 1 else type(data)(data.validation, data.train)

    cache, workload = Counted(), Changing(build, None)
    loop = loop_with(workload, replicas_of(1), cache)
    for config in (first, second, first):
        skipped, _ = find(loop, workload, config)
        outputs = skipped.layers.outputs(loop.trial.inputs.rows.train[0])
        np.testing.assert_allclose(skipped.rows.train[0][0], outputs[0], atol=1e-6)
    assert cache.num_computed == 2


def test_weights_that_differ_in_each_trial_are_not_shared_for_long(replicas_of):
    def build(config):
        image = keras.Input((8, 8, 3))
        base = backbone()  # with weights by the trial's seed
        base.trainable = False
        features = keras.layers.GlobalAveragePooling2D()(base(image))
        return compiled(keras.Model(image, head(features, config)), config)

    cache, workload = Counted(), Given(build, images())
    loop = loop_with(workload, replicas_of(1), cache)
    found = [find(loop, workload, seed=seed) for seed in range(4)]
    assert [skipped is not None for skipped, _ in found] == [True, True, False, False]
    assert cache.num_computed == 4  # of which the last two are refused
    assert "differ between trials" in found[-1][-1]


@pytest.mark.slow
def test_a_checkpoint_with_other_frozen_weights(replicas_of, tmp_path):
    def build(config):
        image = keras.Input((8, 8, 3))
        base = pretrained(backbone(), config["weights"])
        features = keras.layers.GlobalAveragePooling2D()(base(image))
        return compiled(keras.Model(image, head(features, config)), config)

    workload = Given(build, images())
    results = []
    for cache in (Counted(), None):
        loop = loop_with(workload, replicas_of(1), cache)
        begin(loop, workload, {"weights": 1}).epoch()
        loop.state().write(tmp_path)
        loop = loop_with(workload, replicas_of(1), cache)
        begin(loop, workload, {"weights": 2}).epoch()
        loop.restore(Checkpoint.read(tmp_path))
        results.append(
            ([loop.epoch(), loop.epoch()], [v.numpy() for v in loop.trial.program.model.variables])
        )
    assert furthest(*results) < 1e-6


def test_callbacks_change_frozen_layers(replicas_of):
    workload = Given(nested, images(), callbacks=lambda config: [ChangesWeights()])
    shared, whole, _ = both(workload, replicas_of(1))
    assert furthest(shared, whole) < 1e-6


def test_the_graph_stays_when_frozen_weights_change_in_each_epoch(replicas_of):
    workload = Given(nested, images(), callbacks=lambda config: [ChangesWeightsEachTime()])
    results = []
    for cache in (Counted(), None):
        loop = loop_with(workload, replicas_of(1), cache)
        results.append(run(loop, workload, {}, epochs=4))
        assert loop.num_programs == 1
    assert furthest(*results) < 1e-6


def test_rows_that_change_are_not_shared(replicas_of):
    class Augmented(Given):
        def per_example(self, config, *, training):
            return lambda row, seed: (row[0] * 2, row[1])

    for workload, reason in (
        (Augmented(nested, images()), "per_example"),
        (ByTape(nested, images()), "train_step"),
    ):
        skipped, obstacle = find(loop_with(workload, replicas_of(1), Counted()), workload)
        assert skipped is None
        assert reason in obstacle


def test_outputs_that_do_not_fit_are_not_shared(replicas_of):
    smallest = 29 * 16 * 4  # pooled features of all rows
    for max_bytes, is_shared in ((smallest, True), (smallest - 1, False)):
        cache, workload = Counted(), Given(inline, images())
        cache.max_bytes = max_bytes
        loop = loop_with(workload, replicas_of(1), cache)
        assert (find(loop, workload)[0] is not None) == is_shared


def test_the_whole_model_is_what_others_see(replicas_of):
    workload = Given(nested, images())
    loop = begin(loop_with(workload, replicas_of(1), Counted()), workload)
    reported = loop.epoch()
    model = loop.trial.program.model
    x, y = workload.load_data({}).validation
    found = model.evaluate(x, y, verbose=0, return_dict=True)
    assert found["loss"] == pytest.approx(reported["val_loss"], rel=1e-5)
    assert model.input_shape == (None, 8, 8, 3)
    assert len(Checkpoint.of(model, epoch=1, seed=1, config={}).model) == len(model.variables)
    rows = place_rows(rows_of(workload.load_data({})), replicas_of(1))
    assert model.predict(rows.sample[0], verbose=0).shape == (2, 3)
    assert "call" not in vars(model)
