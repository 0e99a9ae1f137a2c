"""How batches go over the replicas: what one may choose, and what is refused."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from exactness_cases import CASES
from guards import slow
from trials import ByTape, Given, begin, draw, furthest, furthest_values, run, run_fresh

from tune_tf.errors import WorkloadError
from tune_tf.parallelism import Mirrored
from tune_tf.training import build
from tune_tf.training.devices import Devices
from tune_tf.training.loop import GraphLoop
from tune_tf.training.replicas import replicas
from tune_tf.training.replicas.replicas import MultiWorkerReplicas, Replicas

pytestmark = pytest.mark.tf
layers = keras.layers
crossentropy = keras.losses.SparseCategoricalCrossentropy


def classifier(*hidden, optimizer=lambda: "sgd", wrap=lambda layers: layers, width=4):
    """Return a builder of a classifier; hidden layers and optimizer are factories."""

    def build(config):
        inner = wrap([layers.Dense(config.get("width", width)), *(make() for make in hidden)])
        model = keras.Sequential([keras.Input((6,)), *inner, layers.Dense(3)])
        model.compile(optimizer(), crossentropy(from_logits=True), metrics=["accuracy"])
        return model

    return build


class Block(layers.Layer):
    """Layers inside a layer of one's own."""

    def __init__(self, parts):
        super().__init__()
        self.parts = parts

    def call(self, x):
        for part in self.parts:
            x = part(x)
        return x


@pytest.fixture
def warnings_of(caplog):
    """Return a function that runs a workload and returns what was warned of."""
    build._warn_once.cache_clear()

    def run_and_listen(replicas, *, times=1, **spread):
        workload = Given(classifier(layers.BatchNormalization), draw(16))
        for _ in range(times):
            begin(GraphLoop(replicas, Mirrored(replicas.num, **spread)), workload)
        return [record.getMessage() for record in caplog.records]

    return run_and_listen


def test_statistics_of_single_replicas_are_warned_of_once(warnings_of, replicas_of):
    (warning,) = warnings_of(replicas_of(2), times=2)

    assert warning.startswith("batch_normalization: ")
    assert "Mirrored(synchronized_batch_norm=True)" in warning


@pytest.mark.parametrize(
    ("num_replicas", "spread"), [(1, {}), (2, {"synchronized_batch_norm": True})]
)
def test_statistics_of_all_rows_need_no_warning(num_replicas, spread, warnings_of, replicas_of):
    assert warnings_of(replicas_of(num_replicas), **spread) == []


def test_statistics_of_pieces_are_warned_of(warnings_of, replicas_of):
    (warning,) = warnings_of(replicas_of(1), micro_batches=2)

    assert "one of 2 pieces of each batch (micro_batches)" in warning


def test_layers_inside_layers_are_synchronized_too(replicas_of):
    workload = Given(
        classifier(layers.BatchNormalization, wrap=lambda parts: [Block(parts)]), draw(21, 11)
    )

    one = run_fresh(workload, replicas_of(1))
    two = run_fresh(workload, replicas_of(2), synchronized_batch_norm=True)

    assert furthest(two, one) <= 1e-5


@pytest.mark.parametrize(
    ("num_replicas", "name"),
    [
        (1, "L2 penalty"),
        (2, "sample weight"),
        slow(2, "metrics that are no means"),
        slow(1, "sample weight"),
        slow(2, "L2 penalty"),
        slow(2, "sparse gradients, Adam, clipnorm"),
        slow(2, "accumulated gradients, clipped"),
    ],
)
def test_a_batch_in_pieces_gives_the_numbers_of_a_whole_one(name, num_replicas, replicas_of):
    workload = CASES[name].workload

    whole = run_fresh(workload, replicas_of(1))
    in_pieces = run_fresh(workload, replicas_of(num_replicas), micro_batches=3)

    assert furthest(in_pieces, whole) <= 1e-5


class Silent(ByTape):
    """A workload whose step does not say what it did."""

    def __init__(self, says, *given):
        super().__init__(*given)
        self._says = says

    def train_step(self, model, batch):
        super().train_step(model, batch)
        return self._says


@pytest.mark.parametrize(
    ("says", "told"),
    [
        pytest.param(None, "None", id="nothing"),
        pytest.param({"my_loss": 1.0}, "my_loss", id="other"),
    ],
)
@pytest.mark.parametrize("num_replicas", [1, 2])
def test_a_train_step_without_a_loss_is_refused(says, told, num_replicas, replicas_of):
    workload = Silent(says, classifier(), draw(16))

    with pytest.raises(WorkloadError, match=f"train_step of Silent .*returned {told} but no loss"):
        run_fresh(workload, replicas_of(num_replicas))


class ByHand(Given):
    """A workload that changes weights by itself."""

    def train_step(self, model, batch):
        x, y = batch
        with tf.GradientTape() as tape:
            loss = model.compute_loss(x, y, model(x, training=True))
        variables = model.trainable_variables
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(0.1 * gradient)
        return {"loss": loss}


def test_an_update_of_each_replica_by_itself_is_refused(replicas_of):
    workload = ByHand(classifier(), draw(16))

    with pytest.raises(WorkloadError, match=r"train_step of ByHand .* without model\.optimizer"):
        run_fresh(workload, replicas_of(2))


def test_a_second_optimizer_is_refused(replicas_of):
    def build(config):
        model = classifier()(config)
        model.critic_optimizer = keras.optimizers.Adam()
        return model

    workload = Given(build, draw(16))

    with pytest.raises(WorkloadError, match=r"besides the compiled one \(critic_optimizer\)"):
        run_fresh(workload, replicas_of(2))


def own_loss(y_true, y_pred):
    return keras.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)


def test_a_train_step_of_its_own_with_a_loss_of_the_whole_batch_is_refused(replicas_of):
    def build(config):
        model = classifier()(config)
        model.compile("sgd", own_loss)
        return model

    workload = ByTape(build, draw(16))

    with pytest.raises(
        WorkloadError, match=r"the loss own_loss may need the whole batch.*train_step"
    ):
        run_fresh(workload, replicas_of(2))


def test_a_train_step_of_its_own_cannot_take_pieces(replicas_of):
    workload = ByTape(classifier(), draw(16))

    with pytest.raises(WorkloadError, match="micro_batches is 2, but a custom train_step"):
        run_fresh(workload, replicas_of(1), micro_batches=2)


@pytest.mark.parametrize(
    ("num_rows", "batch_size"),
    [pytest.param(18, 9, id="every batch"), pytest.param(19, 8, id="the last batch")],
)
def test_uneven_batches_are_refused_where_asked_for(num_rows, batch_size, replicas_of):
    workload = Given(classifier(), draw(num_rows), batch_size=batch_size)

    with pytest.raises(WorkloadError, match=r"row\(s\) is not divisible by the 2 replicas"):
        run_fresh(workload, replicas_of(2), uneven="refuse")


def test_even_batches_are_not_refused(replicas_of):
    workload = Given(classifier(), draw(20))

    assert furthest(
        run_fresh(workload, replicas_of(2), uneven="refuse"), run_fresh(workload, replicas_of(1))
    ) <= (1e-5)


def copies(variable):
    """Return the values of a variable in all replicas."""
    return [part.numpy() for part in getattr(variable.value, "values", (variable.value,))]


def test_an_overflow_in_one_replica_skips_the_batch_in_all(replicas_of):
    data = draw(32)
    data.train[0][5] = 3e4  # its gradient is no float16 once the loss is scaled

    def build(config):
        keras.config.set_dtype_policy("mixed_float16")
        try:
            return classifier(optimizer=lambda: keras.optimizers.SGD(1e-7))(config)
        finally:
            keras.config.set_dtype_policy("float32")

    def trained(num_replicas):
        workload = Given(build, data)
        loop = begin(GraphLoop(replicas_of(num_replicas)), workload)
        loop.epoch()
        return loop.trial.program.model

    one, two = trained(1), trained(2)

    assert int(one.optimizer.iterations.numpy()) == 3  # of 4 batches
    for alone, mirrored in zip(one.optimizer.variables, two.optimizer.variables, strict=True):
        assert furthest_values(copies(mirrored), copies(alone) * 2) <= 1e-6
    for alone, mirrored in zip(one.variables, two.variables, strict=True):
        assert furthest_values(copies(mirrored), copies(alone) * 2) <= 1e-3


def test_a_callback_steers_the_learning_rate_of_all_replicas(replicas_of):
    workload = ByTape(
        classifier(optimizer=lambda: keras.optimizers.SGD(0.1, global_clipnorm=0.1)),
        draw(29, 11),
        callbacks=lambda config: [
            keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate / (epoch + 1))
        ],
    )

    one, two = (run_fresh(workload, replicas_of(num)) for num in (1, 2))

    assert furthest(two, one) <= 1e-5
    assert any(np.allclose(value, 0.1 / 6) for value in two[1] if not value.shape)


@pytest.mark.parametrize(
    ("policy", "tolerance"),
    [
        # Sums in half precision depend on their order: bfloat16 rounds to 1/256, float16 to 1/2048.
        slow("mixed_bfloat16", 2e-2),
        ("mixed_float16", 1e-2),
    ],
)
def test_replicas_of_pieces_train_in_half_precision(policy, tolerance, replicas_of):
    def build(config):
        keras.config.set_dtype_policy(policy)
        try:
            optimizer = functools.partial(keras.optimizers.SGD, 0.1, global_clipnorm=0.1)
            return classifier(layers.ReLU, optimizer=optimizer)(config)
        finally:
            keras.config.set_dtype_policy("float32")

    workload = Given(build, draw(21, 11))

    two = run_fresh(workload, replicas_of(2), micro_batches=2)
    assert furthest(two, run_fresh(workload, replicas_of(1))) <= tolerance


def each_structure(num, replicas):
    """Run trials that all differ in structure in one process; return their losses."""
    workload = Given(classifier(), draw(16))
    loop = GraphLoop(replicas)
    losses = [run(loop, workload, {"width": 3 + i}, epochs=1)[0][0]["loss"] for i in range(num)]
    assert loop.num_programs == num
    return losses


@pytest.mark.slow
def test_replicas_train_one_structure_after_another(replicas_of):
    losses = each_structure(5, replicas_of(2))

    assert losses == pytest.approx(each_structure(5, replicas_of(1)), rel=1e-5)


@pytest.mark.parametrize(
    ("names", "reduction"),
    [
        pytest.param(("GPU:0", "GPU:1"), type(None), id="NCCL on GPUs, TensorFlow's default"),
        pytest.param(
            ("CPU:1", "CPU:2"), tf.distribute.ReductionToOneDevice, id="one device on CPUs"
        ),
    ],
)
def test_replicas_add_up_by_what_their_devices_can_do(names, reduction, monkeypatch):
    asked = {}

    def made(self, devices, cross_device_ops):
        asked.update(devices=devices, reduction=cross_device_ops)

    monkeypatch.setattr(tf.distribute.MirroredStrategy, "__init__", made)
    Replicas(Devices(names))

    assert asked["devices"] == list(names)
    assert isinstance(asked["reduction"], reduction)


@pytest.mark.parametrize(("device", "expected"), [("GPU:0", "NCCL"), ("CPU:0", "AUTO")])
def test_workers_exchange_gradients_by_nccl_between_gpus(monkeypatch, device, expected):
    given = {}

    class Strategy:
        num_replicas_in_sync = 2

        def __init__(self, **settings):
            given.update(settings)

    monkeypatch.setenv("TF_CONFIG", "")
    monkeypatch.setattr(replicas, "_MultiWorkerStrategy", Strategy)
    MultiWorkerReplicas(Devices((device,)), ["127.0.0.1:1", "127.0.0.1:2"], 0)

    assert given["communication_options"].implementation.value == expected
