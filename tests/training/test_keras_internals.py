"""The private parts of Keras that training reads are as it takes them to be."""

import gc
import random
import types
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf

from tune_tf.errors import WorkloadError
from tune_tf.training import keras_internals as internals

pytestmark = pytest.mark.tf
layers = keras.layers


@pytest.fixture(scope="module")
def model():
    inputs = keras.Input((6,))
    hidden = layers.Dropout(0.5)(layers.Dense(4)(inputs))
    made = keras.Model(inputs, layers.Add()([hidden, hidden]))
    made.compile(keras.optimizers.AdamW(0.1), "mse", metrics=["mae"])
    made.fit(np.zeros((4, 6)), np.zeros((4, 4)), verbose=0)
    made.optimizer.__dict__.setdefault("_exclude_from_weight_decay_cache", {})
    return made


def test_each_attribute_that_is_left_out_is_one_of_keras(model):
    several = keras.optimizers.MultiOptimizer(
        keras.optimizers.OptimizerMap(keras.optimizers.Adam(), {".*": keras.optimizers.SGD()})
    )
    several.build(model.trainable_variables)
    owners = {
        internals._VARIABLE_BOOKKEEPING: [model.layers[1].kernel],
        internals._OPTIMIZER_BOOKKEEPING: [model.optimizer, several],
        internals._LAYER_BOOKKEEPING: model.layers,
        internals._MODEL_BOOKKEEPING: [model],
    }
    for names, objects in owners.items():
        found = {name for owner in objects for name in vars(owner)} | {"_lock", "_tracker"}

        assert names <= found, f"Keras has no {names - found} any more"
        assert {internals.bookkeeping_attributes(owner) for owner in objects} == {names}


def test_random_numbers_without_a_seed_follow_from_the_global_generator():
    before = random.getstate()
    generator = internals.global_seed_generator()
    assert random.getstate() == before  # that drew no number
    drawn = []
    for _ in range(2):
        generator.state.assign([7, 0])
        drawn.append(keras.random.normal((3,)).numpy().tolist())

    assert drawn[0] == drawn[1]


@pytest.mark.parametrize(
    ("owner", "expected"),
    [
        pytest.param(lambda: keras.random.SeedGenerator(3), True, id="generator"),
        pytest.param(lambda: keras.initializers.RandomNormal(), True, id="initializer"),
        pytest.param(lambda: layers.Dropout(0.5, seed=3), True, id="layer with a generator"),
        pytest.param(lambda: layers.Dense(3), False, id="layer without seed"),
    ],
)
def test_seeds_that_variables_begin_with_are_told(owner, expected):
    assert ("seed" in internals.seed_attributes(owner())) is expected


@pytest.mark.parametrize(("profile_batch", "expected"), [(0, False), ((2, 3), True)])
def test_a_profile_of_batches_is_told(profile_batch, expected, tmp_path):
    callback = keras.callbacks.TensorBoard(str(tmp_path), profile_batch=profile_batch)

    assert internals.profiles_batches(callback) is expected


def test_names_are_counted_as_when_they_were_noted():
    keras.layers.Dense(3)
    before = internals.automatic_names()
    first = keras.layers.Dense(3).name
    internals.reset_keras_state(before)

    assert before["dense"] >= 1
    assert keras.layers.Dense(3).name == first


def test_a_reset_makes_a_new_generator_for_draws_without_a_seed():
    random.seed(5)
    internals.reset_keras_state({})
    first = keras.random.normal((3,)).numpy().tolist()
    random.seed(5)
    internals.reset_keras_state({})

    assert keras.random.normal((3,)).numpy().tolist() == first


def test_an_eager_draw_by_the_global_seed_is_told_and_one_in_a_graph_is_not(monkeypatch):
    monkeypatch.setattr(internals.random_seed, "get_seed", internals.random_seed.get_seed)
    told = []
    assert internals.before_eager_draws(lambda: told.append(1))
    tf.random.normal((2,), seed=3)
    assert told == [1]
    tf.function(lambda: tf.random.normal((2,), seed=3)).get_concrete_function()
    assert told == [1]
    tf.random.set_seed(7)
    try:
        assert internals.global_seed() == 7
    finally:
        tf.random.set_seed(None)
    assert internals.global_seed() is None


def test_a_traced_function_runs_with_other_variables_and_lets_go_of_its_own():
    def traced():
        variable = tf.Variable(1.0)
        function = tf.function(lambda x: x * variable, autograph=False)
        function = function.get_concrete_function(tf.TensorSpec([]))
        (handle,) = internals.captured_handles(function)
        assert handle is variable.handle
        return function, weakref.ref(variable)

    function, gone = traced()
    other = tf.Variable(5.0)
    function.set_external_captures([other.handle])
    gc.collect()

    assert gone() is None
    assert float(function(tf.constant(2.0))) == 10.0


def test_what_is_traced_is_not_kept_by_the_registry_of_gradients():
    def graph_of_a_trace():
        @tf.function
        def trained(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = tf.nn.silu(x)
            return tape.gradient(y, x)

        with internals.unregister_new_gradients():
            traced = trained.get_concrete_function(tf.TensorSpec([3]))
        assert np.isfinite(traced(tf.ones([3])).numpy()).all()
        return weakref.ref(traced.graph)

    graph = graph_of_a_trace()
    gc.collect()

    assert graph() is None


def test_xla_is_used_on_request_only(monkeypatch):
    cards = [types.SimpleNamespace(device_type="GPU")]
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind=None: cards)

    def compiled(**options):
        made = keras.Sequential([keras.Input((2,)), layers.Dense(1)])
        made.compile(loss="mse", **options)
        return made.jit_compile

    assert compiled()  # what Keras chooses on a machine with a GPU
    with internals.xla_on_request_only():
        assert not compiled()
        assert not compiled(jit_compile="auto")
        assert compiled(jit_compile=True)
    assert compiled()


def test_calls_of_a_functional_model_are_replayed(model):
    x = np.ones((2, 6), "float32")
    values = {id(model.inputs[0]): tf.constant(x)}
    assert [each.operation for each in internals.calls_in_order(model)] == model.layers
    assert list(internals.calls_in_order(model.optimizer)) == []
    calls = [each for each in internals.calls_in_order(model) if each.inputs]
    for call in calls:
        call.run(values, training=None)
    replayed = values[id(model.outputs[0])]
    np.testing.assert_array_equal(replayed, model(x, training=False))
    dropout = next(each for each in calls if isinstance(each.operation, layers.Dropout))
    dropout.run(values, training=True)
    assert np.any(values[id(dropout.outputs[0])] == 0)


def test_the_call_of_a_model_is_replaced_for_any_inputs(model):
    one = keras.Sequential([layers.Input((6,)), layers.Dense(2)])
    assert internals.layer_graph(one) is not one
    assert internals.layer_graph(model) is model
    for each in (one, model):
        with internals.replace_calls({each: lambda inputs, training=None, **_: (training, inputs)}):
            training, inputs = each((tf.zeros((2, 9)),), training=True)
        assert training is True
        assert inputs[0].shape == (2, 9)
        assert each(np.zeros((1, 6))).shape[0] == 1
        assert "_assert_input_compatibility" not in vars(each)
        (tensor,) = internals.standard_inputs(each, np.zeros((2, 6)))
        assert tensor.dtype == tf.float32


def test_logits_of_a_softmax_are_known():
    assert internals.has_keras_logits(layers.Softmax(axis=1)(tf.zeros((2, 3, 4))))
    assert not internals.has_keras_logits(tf.zeros((2, 3)))


def test_masks_are_read_and_set():
    codes = tf.constant([[1, 2, 0]])
    embedded = layers.Embedding(3, 4, mask_zero=True)(codes)
    assert internals.keras_mask(codes) is None
    assert internals.keras_mask(embedded).numpy().tolist() == [[True, True, False]]
    internals.set_keras_mask(embedded, tf.constant([[True, False, False]]))
    lstm = layers.LSTM(2)
    np.testing.assert_allclose(lstm(embedded), lstm(embedded[:, :1]), atol=1e-6)


def test_an_optimizer_sums_gradients_over_replicas_where_it_can_be_left_out():
    optimizer = keras.optimizers.SGD()
    internals.skip_sum_over_replicas(optimizer)

    assert optimizer._all_reduce_sum_gradients(["pair"]) == ["pair"]
    with pytest.raises(WorkloadError, match="use one replica"):
        internals.skip_sum_over_replicas(object())
