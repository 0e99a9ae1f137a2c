"""Several replicas under ``loop: fit``: the numbers of one device and of ``keras.Model.fit``."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from exactness_cases import CASES, mlp, two_outputs
from guards import guarded, slow
from trials import SEED, ByTape, Given, bits, draw, furthest, furthest_values

from tune_tf.errors import WorkloadError
from tune_tf.parallelism import Mirrored
from tune_tf.training.core.build import build_model
from tune_tf.training.core.checkpoint import Checkpoint
from tune_tf.training.core.fit_loop import FitLoop
from tune_tf.training.core.seeds import seed_python_and_numpy, seeded_generators
from tune_tf.workload import Data

pytestmark = pytest.mark.tf
callbacks, layers, optimizers = keras.callbacks, keras.layers, keras.optimizers
ROWS = draw(41, 19)
WEIGHTED = draw(41, 19, weights=True)


class Loading(Given):
    """A workload that makes its data anew for each trial."""

    def load_data(self, config):
        return self._data()


class InOrder(Given):
    """A workload whose rows are not shuffled."""

    def shuffle(self, config):
        return False


class Batches(keras.utils.PyDataset):
    """Weighted rows in batches of 8."""

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return tuple(part[8 * index : 8 * index + 8] for part in WEIGHTED.train)


def dataset(part, size=8):
    return tf.data.Dataset.from_tensor_slices(part).batch(size)


def shuffled(part):
    return tf.data.Dataset.from_tensor_slices(part).shuffle(50).batch(8)


def of_two_outputs(part):
    x, y = part
    return dataset(({"a": x, "b": -x}, {"kind": y, "size": x[:, :1]}))


accurate = mlp(metrics=lambda: ["accuracy"], weighted_metrics=lambda: ["accuracy"])
DATA_SETS = {
    "shuffled": (accurate, lambda: Data(shuffled(ROWS.train), dataset(ROWS.validation))),
    "shuffled, class weight": (
        accurate,
        lambda: Data(
            shuffled(ROWS.train), dataset(ROWS.validation), class_weight={0: 0.2, 1: 3.0, 2: 1.0}
        ),
    ),
    "sample weight": (
        accurate,
        lambda: Data(shuffled(WEIGHTED.train), dataset(WEIGHTED.validation)),
    ),
    "endless": (
        accurate,
        lambda: Data(
            shuffled(ROWS.train).repeat(),
            dataset(ROWS.validation).repeat(),
            steps_per_epoch=4,
            validation_steps=2,
        ),
    ),
    "of fixed shape": (accurate, lambda: Data(dataset(ROWS.train).take(5), dataset(ROWS.train, 5))),
    "two outputs, one row over": (
        two_outputs,
        lambda: Data(of_two_outputs(ROWS.train), of_two_outputs(ROWS.train)),
    ),
    "PyDataset": (accurate, lambda: Data(Batches(), WEIGHTED.validation)),
    "several steps per execution": (
        mlp(steps_per_execution=lambda: 4),
        lambda: Data(shuffled(ROWS.train), dataset(ROWS.validation)),
    ),
}
WORKLOADS = {name: case.workload for name, case in CASES.items() if case.replicas} | {
    f"data set: {name}": Loading(*parts) for name, parts in DATA_SETS.items()
}
NOT_BY_KERAS = {
    "averaged weights",  # fit ends with averages in the weights
    "averages overwrite weights",
    "accumulated gradients, averages overwrite weights, constraint",
    "train_step of the workload",
    "train_step of the workload, loss by hand",
}
GUARDS = [
    "global_clipnorm",
    "synchronized batch normalization",
    "train_step of the workload",
    "data set: shuffled, class weight",
    "data set: two outputs, one row over",
    "data set: PyDataset",
]


def begun(replicas, workload, **spread):
    """Return a loop in a trial."""
    loop = FitLoop(workload, replicas, Mirrored(replicas.num, **spread))
    with seeded_generators(SEED):
        data = workload.load_data({})
    loop.start({}, data, SEED)
    return loop


def values_of(model):
    return [variable.numpy() for variable in (*model.variables, *model.optimizer.variables)]


def run(replicas, workload, epochs=2, **spread):
    """Run a trial; return metrics by epoch and the values of all variables."""
    loop = begun(replicas, workload, **spread)
    history = [loop.epoch() for _ in range(epochs)]
    values = values_of(loop._current.model)
    loop.finish()
    return history, values


def run_by_keras(workload, replicas, epochs=2):
    """Run the same trial by one call of ``keras.Model.fit``, without any loop."""
    with seeded_generators(SEED):
        data = workload.load_data({})
    model = build_model(workload, {}, replicas, SEED)
    keras.utils.set_random_seed(SEED)
    has_arrays = isinstance(data.train, tuple)
    x, y, weights = (*(data.train if has_arrays else (data.train,)), None, None)[:3]
    seeding = callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: seed_python_and_numpy(SEED + epoch)
    )
    history = model.fit(
        x,
        y,
        sample_weight=weights,
        batch_size=workload.global_batch_size({}) if has_arrays else None,
        shuffle=has_arrays or isinstance(x, keras.utils.PyDataset),
        class_weight=data.class_weight,
        validation_data=data.validation,
        steps_per_epoch=data.steps_per_epoch,
        validation_steps=data.validation_steps,
        epochs=epochs,
        callbacks=[seeding],
        verbose=0,
    ).history
    by_epoch = [{name: values[i] for name, values in history.items()} for i in range(epochs)]
    return by_epoch, values_of(model)


@pytest.fixture(scope="module")
def with_one(replicas_of):
    """Return a function from a workload's name to its run with one replica."""
    return functools.cache(lambda name: run(replicas_of(1), WORKLOADS[name]))


@pytest.mark.parametrize("name", guarded(WORKLOADS, GUARDS))
def test_two_replicas_give_the_numbers_of_one(name, replicas_of, with_one):
    two, one = run(replicas_of(2), WORKLOADS[name]), with_one(name)

    if name in CASES and CASES[name].weights_only:
        assert furthest_values(two[1], one[1]) <= 1e-5
    else:
        assert furthest(two, one) <= 1e-5


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "SGD with momentum, one row over",
        "synchronized batch normalization",
        "two inputs, two outputs, uneven",
        "own train_step, uneven, clipped",
        "data set: shuffled, class weight",
        "data set: two outputs, one row over",
        "data set: several steps per execution",
    ],
)
def test_three_replicas_give_the_numbers_of_one(name, replicas_of, with_one):
    assert furthest(run(replicas_of(3), WORKLOADS[name]), with_one(name)) <= 1e-5


@pytest.mark.parametrize(
    "name", guarded([n for n in WORKLOADS if n not in NOT_BY_KERAS], GUARDS[3:])
)
def test_one_replica_gives_the_numbers_of_keras(name, replicas_of, with_one):
    assert bits(with_one(name)) == bits(run_by_keras(WORKLOADS[name], replicas_of(1)))


class Noting(callbacks.Callback):
    """Notes batches, logs and what an evaluation and a prediction give."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def on_train_batch_end(self, batch, logs=None):
        self.seen.append((batch, *(float(logs[name]) for name in sorted(logs))))

    def on_test_batch_end(self, batch, logs=None):
        self.seen.append((batch, *(float(logs[name]) for name in sorted(logs))))

    def on_epoch_end(self, epoch, logs=None):
        x, y = ROWS.validation
        evaluated = self.model.evaluate(x, y, batch_size=4, verbose=0, return_dict=True)
        self.seen.append(evaluated["loss"])
        self.seen += self.model.predict(x[:3], verbose=0).ravel().tolist()


def test_callbacks_see_the_batches_and_logs_of_one_device(replicas_of):
    def noted(num):
        noting = Noting()
        scheduler = callbacks.LearningRateScheduler(lambda epoch, rate: rate / (epoch + 1))
        made = [noting, scheduler]
        run(replicas_of(num), Given(accurate, ROWS, callbacks=lambda config: made), epochs=2)
        return noting.seen

    one, two = noted(1), noted(2)

    assert len(one) == 2 * (6 + 3 + 1 + 3 * 3)  # batches, evaluation and prediction of an epoch
    for a, b in zip(one, two, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6)


def test_patience_and_saved_models_are_those_of_one_device(replicas_of, tmp_path):
    def trained(num):
        path = tmp_path / f"{num}.keras"
        made = [callbacks.ModelCheckpoint(path), callbacks.EarlyStopping("loss", 1e6, patience=1)]
        loop = begun(replicas_of(num), Given(accurate, ROWS, callbacks=lambda config: made))
        stopped = []
        for _ in range(2):
            loop.epoch()
            stopped.append(loop.stop_training)
        loop.finish()
        return stopped, keras.models.load_model(path).get_weights()

    one, two = trained(1), trained(2)

    assert one[0] == two[0] == [False, True]
    assert furthest_values(two[1], one[1]) <= 1e-5


@pytest.mark.parametrize(("first", "second"), [(2, 2), (2, 1), slow(1, 3)])
def test_a_restored_trial_gives_the_numbers_of_one_that_never_stopped(
    first, second, replicas_of, tmp_path
):
    workload = InOrder(mlp(optimizer=lambda: optimizers.Adam(0.01, clipnorm=0.1)), ROWS)
    expected = run(replicas_of(1), workload, epochs=3)
    loop = begun(replicas_of(first), workload)
    loop.epoch()
    loop.state().write(tmp_path)
    loop.finish()
    restored = begun(replicas_of(second), workload)
    restored.restore(Checkpoint.read(tmp_path))
    history = [restored.epoch() for _ in range(2)]
    values = values_of(restored._current.model)
    restored.finish()

    assert furthest((history, values), (expected[0][1:], expected[1])) <= 1e-5


def test_a_second_trial_gives_the_numbers_of_a_fresh_one(replicas_of):
    workload = CASES["dropout"].workload
    fresh = run(replicas_of(2), workload, epochs=2)
    loop = begun(replicas_of(2), workload)
    loop.epoch()
    loop.start({}, workload.load_data({}), SEED)
    again = [loop.epoch() for _ in range(2)], values_of(loop._current.model)
    loop.finish()

    assert bits(again) == bits(fresh)


def test_statistics_are_synchronized_if_asked_to(replicas_of):
    workload = Given(mlp(layers.BatchNormalization), ROWS)

    one = run(replicas_of(1), workload)
    two = run(replicas_of(2), workload, synchronized_batch_norm=True)

    assert furthest(two, one) <= 1e-5


@pytest.mark.parametrize(
    ("workload", "spread", "text"),
    [
        pytest.param(
            Given(accurate, ROWS), {"uneven": "refuse"}, "not divisible by the 2", id="uneven"
        ),
        pytest.param(
            Loading(accurate, lambda: Data(dataset(ROWS.train))),
            {"uneven": "refuse"},
            "not divisible by the 2",
            id="uneven data set",
        ),
        pytest.param(
            Given(mlp(layers.BatchNormalization), ROWS), {}, "without rows", id="statistics"
        ),
        pytest.param(Given(accurate, ROWS, batch_size=1), {}, "smaller than the 2", id="one row"),
        pytest.param(
            Given(mlp(run_eagerly=lambda: True), ROWS),
            {},
            'debug with loop="fit" on one replica',
            id="eager",
        ),
    ],
)
def test_what_replicas_cannot_train_exactly_is_refused(workload, spread, text, replicas_of):
    with pytest.raises((WorkloadError, tf.errors.InvalidArgumentError), match=text):
        run(replicas_of(2), workload, epochs=1, **spread)


def test_one_replica_may_run_eagerly(replicas_of):
    ran_eagerly = []

    class Looking(layers.Layer):
        def call(self, x):
            ran_eagerly.append(tf.executing_eagerly())
            return x

    def build(config):
        return mlp(Looking, run_eagerly=lambda: True)(config)

    eager = run(replicas_of(1), Given(build, ROWS), epochs=1)

    assert any(ran_eagerly)
    assert furthest(eager, run(replicas_of(1), Given(mlp(), ROWS), epochs=1)) <= 1e-5


@pytest.mark.parametrize("training", [True, False])
def test_all_replicas_take_part(training, replicas_of):
    took_part = set()

    class Looking(layers.Layer):
        def call(self, x, training=None):
            context = tf.distribute.get_replica_context()
            if context and context.num_replicas_in_sync > 1:
                number = int(tf.get_static_value(context.replica_id_in_sync_group))
                took_part.add((bool(training), number))
            return x

    run(replicas_of(2), Given(mlp(Looking), ROWS), epochs=1)

    assert {(training, 0), (training, 1)} <= took_part


class Doubling(ByTape):
    """A workload whose step reports twice the loss."""

    def train_step(self, model, batch):
        return {"loss": 2 * super().train_step(model, batch)["loss"], "mine": 1.0}


@pytest.mark.parametrize(("num_replicas", "eagerly"), [(1, False), (1, True), (2, False)])
def test_the_train_step_of_a_workload_is_run(num_replicas, eagerly, replicas_of):
    build = mlp(run_eagerly=lambda: eagerly)

    assert run(replicas_of(num_replicas), Doubling(build, ROWS), 1)[0][0]["mine"] == 1.0


@pytest.mark.parametrize("num_replicas", [1, 2])
def test_a_train_step_without_a_loss_is_refused(num_replicas, replicas_of):
    class Silent(ByTape):
        def train_step(self, model, batch):
            return {"mine": super().train_step(model, batch)["loss"]}

    with pytest.raises(WorkloadError, match=r"train_step of Silent .*returned mine but no loss"):
        run(replicas_of(num_replicas), Silent(mlp(), ROWS), epochs=1)
