"""Keras callbacks do in a loop what they do in ``fit``, or are refused."""

import sys

import keras
import numpy as np
import pytest
from guards import guarded
from trials import Given, begin, built, dense_model, draw, furthest_values, loop_with

from tune_tf.errors import WorkloadError
from tune_tf.training.loop import GraphLoop

pytestmark = pytest.mark.tf
callbacks = keras.callbacks


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


def run_by_fit(model, made, epochs=3):
    """Train as ``run`` does it, by one call of ``fit``; return its history."""
    data = draw(20, 8)
    return model.fit(
        *data.train,
        batch_size=8,
        shuffle=False,
        validation_data=data.validation,
        epochs=epochs,
        callbacks=made,
        verbose=0,
    ).history


def counting(config):
    """Build a model with a metric, and averages of its weights where asked for."""
    model = dense_model(config)
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9, use_ema=config.get("ema", False))
    model.compile(
        optimizer,
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


class Unshuffled(Given):
    """Trains in the order of the rows."""

    def shuffle(self, config):
        return False


@pytest.fixture(scope="module")
def both_ways(replicas_of):
    """Return a function that trains with callbacks in a loop and by ``fit``.

    It takes a function that makes the callbacks for ``"loop"`` or ``"fit"``, and returns of each
    the metrics of the epochs, and the weights. One loop and one model serve all calls.
    """
    loops, models = {}, {}

    def train(make, config=None, epochs=3, num_replicas=1):
        key = (num_replicas, repr(config))
        replicas = replicas_of(num_replicas)
        if key not in models:
            workload = Unshuffled(counting, draw(20, 8))
            loops[key] = GraphLoop(replicas), workload
            model = built(workload, replicas, config)
            with replicas.scope():
                model.optimizer.build(model.trainable_variables)
            variables = [*model.variables, *model.optimizer.variables]
            models[key] = model, [(each, each.numpy()) for each in variables]
        model, initial = models[key]
        for variable, value in initial:
            variable.assign(value)
        history = run_by_fit(model, make("fit"), epochs)
        by_fit = [
            dict(zip(history, each, strict=True)) for each in zip(*history.values(), strict=True)
        ]
        loop, workload = loops[key]
        workload._callbacks = lambda config: make("loop")
        begin(loop, workload, config)
        found = []
        while len(found) < epochs and not loop.stop_training:
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


def plain_calls(calls):
    """Return recorded calls with rounded numbers, and what differs in a trial left out."""
    return [
        keras.tree.map_structure(lambda v: round(v, 5) if isinstance(v, float) else v, call)
        for call in calls
    ]


@pytest.mark.parametrize("num_replicas", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_every_call_is_that_of_fit_with_the_same_logs_and_weights(num_replicas, both_ways):
    calls = {"loop": [], "fit": []}
    in_loop, by_fit = both_ways(
        lambda who: [Recorder(calls[who]), Adding(), Recorder(calls[who])],
        num_replicas=num_replicas,
    )

    assert plain_calls(calls["loop"]) == plain_calls(calls["fit"])
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


#: Of every class in keras.callbacks what a trial can do with it.
WORKING = {
    "CSVLogger": lambda folder: [callbacks.CSVLogger(str(folder / "log.csv"))],
    "EarlyStopping": lambda folder: [
        callbacks.EarlyStopping("loss", min_delta=0.2, restore_best_weights=True)
    ],
    "EarlyStopping upwards": lambda folder: [
        callbacks.EarlyStopping("val_loss", mode="max", restore_best_weights=True)
    ],
    "History": lambda folder: [callbacks.History()],
    "LambdaCallback": lambda folder: [
        callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: logs.update(more=1.0 * epoch))
    ],
    "LearningRateScheduler": lambda folder: [
        callbacks.LearningRateScheduler(lambda epoch, rate: 0.1 / (epoch + 1))
    ],
    "ModelCheckpoint": lambda folder: [
        callbacks.ModelCheckpoint(
            str(folder / "{epoch}-{val_loss:.5f}.weights.h5"), save_weights_only=True
        )
    ],
    "ModelCheckpoint of the best": lambda folder: [
        callbacks.ModelCheckpoint(
            str(folder / "{epoch}.weights.h5"), save_weights_only=True, save_best_only=True
        )
    ],
    "ModelCheckpoint of whole models": lambda folder: [
        callbacks.ModelCheckpoint(str(folder / "{epoch}.keras"))
    ],
    "ProgbarLogger": lambda folder: [callbacks.ProgbarLogger()],
    "ReduceLROnPlateau": lambda folder: [
        callbacks.ReduceLROnPlateau("loss", factor=0.5, patience=1, min_delta=1e6)
    ],
    "RemoteMonitor": lambda folder: [callbacks.RemoteMonitor("http://127.0.0.1:9")],
    "SwapEMAWeights": lambda folder: [callbacks.SwapEMAWeights()],
    "TensorBoard": lambda folder: [callbacks.TensorBoard(str(folder / "board"))],
}
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
    "LambdaCallback for batches": (
        lambda: callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: None),
        "LambdaCallback has to be called for each batch",
    ),
}
#: Needs a package that is no dependency: its constructor fails.
UNAVAILABLE = {"OrbaxCheckpoint"}


def test_every_class_of_keras_is_among_the_cases():
    classes = {
        name
        for name, kind in vars(callbacks).items()
        if isinstance(kind, type) and kind not in (callbacks.Callback, callbacks.CallbackList)
    }
    assert classes == {name.split()[0] for name in {*WORKING, *REFUSED}} | {
        "TerminateOnNaN",
        *UNAVAILABLE,
    }


@pytest.mark.filterwarnings("ignore:Could not reach RemoteMonitor")
@pytest.mark.parametrize(
    "name",
    guarded(
        WORKING, ["EarlyStopping", "LearningRateScheduler", "ModelCheckpoint", "SwapEMAWeights"]
    ),
)
def test_a_callback_of_keras_does_what_it_does_in_fit(name, both_ways, tmp_path):
    for who in ("loop", "fit"):
        (tmp_path / who).mkdir()
    in_loop, by_fit = both_ways(lambda who: WORKING[name](tmp_path / who), {"ema": "EMA" in name})

    assert_same(in_loop, by_fit)
    written, by_keras = (
        sorted(p.name for p in (tmp_path / who).rglob("*") if "events" not in p.name)
        for who in ("loop", "fit")
    )
    assert written == by_keras


@pytest.mark.slow
def test_two_replicas_are_validated_by_averages_as_in_fit(both_ways):
    assert_same(*both_ways(lambda who: [callbacks.SwapEMAWeights()], {"ema": True}, num_replicas=2))


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


@pytest.mark.parametrize(
    "hook", ["on_train_batch_end", "on_batch_begin", "on_test_batch_end", "on_batch_end"]
)
def test_a_callback_for_batches_is_refused(hook, replicas_of):
    batchwise = type("Batchwise", (callbacks.Callback,), {hook: lambda self, *a, **k: None})

    with pytest.raises(WorkloadError, match=rf'Batchwise .*{hook}.*loop="fit"'):
        loop_with(replicas_of(1), batchwise())
