"""Keras callbacks do in a loop what they do in ``fit``, or are refused."""

import sys

import keras
import numpy as np
import pytest
from trials import Given, begin, built, dense_model, draw, furthest_values, loop_with

from tune_tf.data import rows_of
from tune_tf.errors import WorkloadError
from tune_tf.parallelism import Mirrored
from tune_tf.training.input.device_rows import place_rows
from tune_tf.training.loop import GraphLoop
from tune_tf.training.parameter_server.update_loop import UpdateLoop

pytestmark = pytest.mark.tf
callbacks = keras.callbacks
EPOCHS = 3


class Recorder(callbacks.Callback):
    """Writes down every call but those for batches, with what it is given and what it sees."""

    def __init__(self, calls):
        super().__init__()
        self._calls = calls

    def set_model(self, model):
        super().set_model(model)
        self._calls.append(("set_model", bool(model.stop_training), model.history is not None))


def _recording(name):
    def record(self, *given, logs=None):
        *numbers, logs = given if logs is None else (*given, logs)
        weights = float(sum(np.abs(w).sum() for w in self.model.get_weights()))
        self._calls.append((name, *numbers, dict(logs), weights))

    return record


for _name in dir(callbacks.Callback):
    if _name.startswith("on_") and "batch" not in _name:
        setattr(Recorder, _name, _recording(_name))


class Adding(callbacks.Callback):
    """Adds a number to the logs, changes one and takes one away."""

    def on_epoch_end(self, epoch, logs=None):
        logs["added"] = np.float32(epoch + 0.5)
        logs["accuracy"] = 0.25
        del logs["val_accuracy"]


def run_by_fit(model, made):
    """Train as ``run`` does it, by one call of ``fit``; return its history."""
    data = draw(20, 8)
    return model.fit(
        *data.train,
        batch_size=8,
        shuffle=False,
        validation_data=data.validation,
        epochs=EPOCHS,
        callbacks=made,
        verbose=0,
    ).history


def counting(config):
    """Build a model with a metric."""
    model = dense_model(config)
    model.compile(
        keras.optimizers.SGD(0.1, momentum=0.9),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


class Unshuffled(Given):
    """Trains in the order of the rows."""

    def shuffle(self, config):
        return False


@pytest.fixture
def both_ways(replicas_of):
    """Return a function that trains with callbacks in a loop and by ``fit``.

    It takes a function that makes the callbacks for ``"loop"`` or ``"fit"``, and returns of each
    the metrics of the epochs, and the weights.
    """

    def train(make, num_replicas=1):
        replicas = replicas_of(num_replicas)
        workload = Unshuffled(counting, draw(20, 8), callbacks=lambda config: make("loop"))
        model = built(workload, replicas)
        with replicas.scope():
            model.optimizer.build(model.trainable_variables)
        history = run_by_fit(model, make("fit"))
        by_fit = [
            dict(zip(history, each, strict=True)) for each in zip(*history.values(), strict=True)
        ]
        loop, found = begin(GraphLoop(replicas), workload), []
        while len(found) < EPOCHS and not loop.stop_training:
            found.append(loop.epoch())
        kept = loop.trial.program.model
        loop.finish()
        return (found, kept.get_weights()), (by_fit, model.get_weights())

    return train


def assert_same(one, other):
    """Compare metrics and weights as ``both_ways`` returns them."""
    assert len(one[0]) == len(other[0])
    for found, by_fit in zip(one[0], other[0], strict=True):
        assert found == pytest.approx(by_fit, rel=1e-5, abs=1e-6)
    assert furthest_values(one[1], other[1]) < 1e-5


def rounded(calls):
    return keras.tree.map_structure(lambda v: round(v, 5) if isinstance(v, float) else v, calls)


@pytest.mark.parametrize("num_replicas", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_every_call_is_that_of_fit_with_the_same_logs_and_weights(num_replicas, both_ways):
    calls = {"loop": [], "fit": []}
    in_loop, by_fit = both_ways(
        lambda who: [Recorder(calls[who]), Adding(), Recorder(calls[who])],
        num_replicas=num_replicas,
    )

    assert rounded(calls["loop"]) == rounded(calls["fit"])
    assert [call[0] for call in calls["loop"][::2]] == [
        "set_model",
        "on_train_begin",
        *["on_epoch_begin", "on_test_begin", "on_test_end", "on_epoch_end"] * 3,
        "on_train_end",
    ]
    assert [list(each) for each in in_loop[0]] == [["loss", "accuracy", "val_loss", "added"]] * 3
    assert_same(in_loop, by_fit)
    assert {type(value) for each in in_loop[0] for value in each.values()} == {float}


def test_validation_sees_what_a_callback_changes_before_it(both_ways):
    class Zeroing(callbacks.Callback):
        def on_test_begin(self, logs=None):
            self.kept = self.model.get_weights()
            self.model.set_weights([np.zeros_like(w) for w in self.kept])

        def on_test_end(self, logs=None):
            self.model.set_weights(self.kept)

    in_loop, by_fit = both_ways(lambda who: [Zeroing()])

    assert [each["val_loss"] for each in in_loop[0]] == pytest.approx([np.log(3)] * 3)
    assert_same(in_loop, by_fit)


class NanLoss(callbacks.Callback):
    """Makes the loss NaN from the second epoch on."""

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1:
            self.model.set_weights([np.full_like(w, np.nan) for w in self.model.get_weights()])


def batchwise(hook):
    return lambda: type("Batchwise", (callbacks.Callback,), {hook: lambda *given, **more: None})()


REFUSED = {
    "BackupAndRestore": (
        lambda: callbacks.BackupAndRestore("backups"),
        "another trial.s backup.*leave it out",
    ),
    "ModelCheckpoint by batches": (
        lambda: callbacks.ModelCheckpoint("a.keras", save_freq=5),
        r'ModelCheckpoint has to be called for each batch.*save_freq="epoch"',
    ),
    "SwapEMAWeights by epochs": (
        lambda: callbacks.SwapEMAWeights(swap_on_epoch=True),
        r"must know the last epoch.*use SwapEMAWeights\(\)",
    ),
    "TensorBoard by batches": (
        lambda: callbacks.TensorBoard("board", update_freq=5),
        r'TensorBoard has to be called for each batch.*update_freq="epoch"',
    ),
    "TensorBoard with a profile": (
        lambda: callbacks.TensorBoard("board", profile_batch=(2, 3)),
        r"TensorBoard has to be called for each batch.*profile_batch=0",
    ),
    "CallbackList": (
        lambda: callbacks.CallbackList([batchwise("on_train_batch_end")()]),
        "CallbackList has to be called for each batch",
    ),
    "LambdaCallback for batches": (
        lambda: callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: None),
        "LambdaCallback has to be called for each batch",
    ),
    **{
        hook: (batchwise(hook), rf'Batchwise .*{hook}.*loop="fit"')
        for hook in ("on_train_batch_end", "on_batch_begin", "on_test_batch_end", "on_batch_end")
    },
}
#: Those of the contract, and those whose files or output nothing in a trial follows from.
SERVING = {
    *("EarlyStopping", "LearningRateScheduler", "ReduceLROnPlateau", "SwapEMAWeights"),
    *("LambdaCallback", "TerminateOnNaN", "CSVLogger", "ModelCheckpoint", "TensorBoard"),
    *("History", "ProgbarLogger", "RemoteMonitor"),
}
#: Needs a package that is no dependency: its constructor fails.
UNAVAILABLE = {"OrbaxCheckpoint"}


def test_every_class_of_keras_is_known():
    classes = {
        name
        for name, kind in vars(callbacks).items()
        if isinstance(kind, type) and kind is not callbacks.Callback
    }
    refused = {name.split()[0] for name in REFUSED if not name.startswith("on_")}
    assert classes == SERVING | refused | UNAVAILABLE


def test_training_ends_where_it_ends_in_fit_when_the_loss_is_nan(both_ways):
    (found, _), (by_fit, _) = both_ways(lambda who: [NanLoss(), callbacks.TerminateOnNaN()])

    assert [each["loss"] for each in found] == pytest.approx(
        [each["loss"] for each in by_fit], nan_ok=True
    )
    assert len(found) == 2


def test_tensorboard_is_refused_without_its_package(replicas_of, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)

    with pytest.raises(WorkloadError, match="pip install tensorboard"):
        loop_with(replicas_of(1), callbacks.TensorBoard("board"))


@pytest.mark.parametrize("name", REFUSED)
def test_a_callback_that_cannot_serve_is_refused_by_name(name, replicas_of):
    make, message = REFUSED[name]
    with pytest.raises(WorkloadError, match=message):
        loop_with(replicas_of(1), make())


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda model: model.compile("sgd"), "compiled the model anew or replaced its optimizer"),
        (lambda model: setattr(model, "optimizer", 0), "compiled the model anew or replaced"),
        (lambda model: setattr(model.layers[-1], "trainable", False), "which layers train before"),
    ],
)
def test_a_callback_that_changes_what_was_traced_is_refused(act, message, replicas_of):
    loop = loop_with(replicas_of(1), callbacks.LambdaCallback())
    loop.epoch()
    act(loop.trial.program.model)

    with pytest.raises(WorkloadError, match=message):
        loop.epoch()


def test_a_setting_of_the_new_config_wins_over_the_saved_one(replicas_of):
    def never_better(patience):
        return callbacks.EarlyStopping("loss", min_delta=1e6, patience=patience)

    loop = loop_with(replicas_of(1), never_better(3))
    loop.epoch(), loop.epoch(), loop.epoch()
    restored, stopped = loop_with(replicas_of(1), never_better(4)), []
    restored.restore(loop.state())
    for _ in range(2):
        restored.epoch()
        stopped.append(restored.stop_training)

    assert stopped == [False, True]


@pytest.mark.parametrize("num_replicas", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_callback_reads_and_saves_the_numbers_of_its_own_trial(
    num_replicas, replicas_of, tmp_path
):
    seen, file = [], tmp_path / "model.keras"

    class Reading(callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.save(file)
            models = self.model, keras.models.load_model(file)
            seen.extend([each.optimizer.momentum, each.layers[1].rate] for each in models)

    def build(config):
        model = keras.Sequential(
            [keras.Input((6,)), keras.layers.Dense(3), keras.layers.Dropout(config["number"])]
        )
        optimizer = keras.optimizers.SGD(0.01, momentum=config["number"])
        model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model

    workload = Given(build, draw(20, 8), callbacks=lambda config: [Reading()])
    loop = GraphLoop(replicas_of(num_replicas))
    for number in (0.25, 0.5):
        begin(loop, workload, {"number": number})
        loop.epoch()
        loop.finish()

    assert seen == [[0.25, 0.25]] * 2 + [[0.5, 0.5]] * 2
    assert {type(number) for numbers in seen for number in numbers} == {float}
    assert loop.num_programs == 1


def test_a_server_whose_workers_validate_refuses_callbacks_around_validation(replicas_of):
    data = draw(20, 8)
    workload = Given(dense_model, data, callbacks=lambda config: [callbacks.SwapEMAWeights()])
    loop = UpdateLoop(replicas_of(1), Mirrored())

    with pytest.raises(WorkloadError, match=r"on_test_begin.*workers of a parameter server"):
        loop.start(workload, {}, place_rows(rows_of(data), None), 1)
