"""What callbacks remember goes with a trial, and with no other trial."""

import os
import pickle
from collections import Counter, OrderedDict, defaultdict, deque

import keras
import ml_dtypes
import numpy as np
import pytest
from guards import slow
from trials import Given, begin, draw, furthest_values

from tune_tf.training.callback_state import is_plain, load_plain
from tune_tf.training.export import trained_model
from tune_tf.training.fit_loop import FitLoop
from tune_tf.training.loop import GraphLoop

pytestmark = pytest.mark.tf
callbacks = keras.callbacks

DATA = draw(20, 8)


def build(config):
    model = keras.Sequential(
        [keras.Input((6,)), keras.layers.Dense(4), keras.layers.Dropout(0.3), keras.layers.Dense(3)]
    )
    model.compile(
        keras.optimizers.SGD(0.1, momentum=0.9, use_ema=config.get("ema", False)),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return model


class Counting(callbacks.Callback):
    """Counts epochs, anew and in place."""

    def __init__(self):
        super().__init__()
        self.count, self.seen = 0, []

    def on_epoch_end(self, epoch, logs=None):
        self.count += 1
        self.seen.append(epoch)
        logs["count"] = self.count + 10 * len(self.seen)


def early_stopping():
    return callbacks.EarlyStopping("loss", patience=3, min_delta=100, restore_best_weights=True)


def stopping_early():
    """A workload whose trials keep the weights of their best epoch."""
    return Given(build, DATA, callbacks=lambda config: [early_stopping()])


def trial(loop, make, config, saved=None):
    """Begin a trial, from a checkpoint if there is one."""
    workload = Given(build, DATA, callbacks=lambda config: [make()])
    if isinstance(loop, FitLoop):
        loop.start(workload, config, DATA, 1234)
    else:
        begin(loop, workload, config)
    if saved is not None:
        loop.restore(saved)
    return loop


@pytest.fixture(scope="module", params=["graph", slow("fit")])
def loop_of(request, replicas_of):
    """Return a function that makes a loop."""
    kind = GraphLoop if request.param == "graph" else FitLoop
    return lambda: kind(replicas_of(1))


def test_a_restored_trial_goes_on_with_what_its_callbacks_remember(loop_of):
    loop = trial(loop_of(), Counting, {})
    loop.epoch(), loop.epoch()
    saved = loop.state()
    loop.epoch()  # what comes after the checkpoint is not in it
    loop.finish()

    assert trial(loop, Counting, {}, saved).epoch()["count"] == 33
    loop.finish()


@pytest.mark.parametrize(
    ("num_epochs", "ema"),
    [
        pytest.param(4, False, id="it stops early"),
        pytest.param(3, False, id="the limit of epochs"),
        pytest.param(4, True, id="averages of the weights"),
    ],
)
def test_a_trial_is_exported_with_its_best_weights(num_epochs, ema, loop_of, tmp_path):
    config = {"ema": ema}
    loop = trial(loop_of(), early_stopping, config)
    loop.epoch()
    best = loop.state().model
    for _ in range(num_epochs - 1):
        loop.epoch()
    ended = loop.state()
    ended.write(tmp_path)
    loop.finish()

    assert ended.has_ended is (num_epochs == 4)
    exported = trained_model(stopping_early(), config, tmp_path)
    kept = [each for each in best if each.dtype == "float32"]  # no states of random generators
    assert furthest_values(exported.get_weights()[: len(kept)], kept) == 0


@pytest.mark.parametrize(
    "value",
    [
        [1, [-2.0, "x", True, float("inf")]],
        (1, (None,)),
        {"a": 1, 2: "b", (1, 2): [3], None: 4, True: 5},
        {1, 2},
        OrderedDict([("b", 1), ("a", 2)]),
        Counter("aab"),
        defaultdict(list, {1: [2]}),
        deque([1, 2], maxlen=2),
        np.float32(0.1),
        np.arange(6, dtype="int16").reshape(2, 3),
        np.array(["a", "bc"]),
        np.ones((2, 3))[:, ::2],
        np.arange(2).astype(ml_dtypes.bfloat16),
        np.arange(2).astype(ml_dtypes.float8_e4m3fn),
        [np.ones(2), np.zeros((0, 3))],
        {"nested": [{"deep": (np.float64(1.5),)}]},
    ],
    ids=repr,
)
def test_a_value_comes_back_as_it_was(value):
    assert is_plain(value)
    back = load_plain(pickle.dumps(value))

    assert type(back) is type(value)
    assert repr(back) == repr(value)
    assert getattr(back, "dtype", None) == getattr(value, "dtype", None)
    assert getattr(back, "maxlen", None) == getattr(value, "maxlen", None)


@pytest.mark.parametrize(
    "value",
    [
        *(print, [object()], np.array([object()]), b"bytes"),
        *(np.ma.array([1, 2]), np.matrix([1]), defaultdict(bytes), defaultdict(lambda: 0)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_values_are_no_state(value):
    assert not is_plain(value)


@pytest.mark.parametrize(
    "value", [os.system, np.load, pytest.raises], ids=["os.system", "np.load", "pytest.raises"]
)
def test_a_checkpoint_runs_no_code(value):
    with pytest.raises(pickle.UnpicklingError, match="is no plain state"):
        load_plain(pickle.dumps(value))


def test_a_list_in_itself_is_no_state_and_no_endless_loop(replicas_of):
    class Circular(callbacks.Callback):
        def on_train_begin(self, logs=None):
            self.around = []
            self.around.append(self.around)

    loop = trial(GraphLoop(replicas_of(1)), Circular, {})

    assert "around" not in loop.state().callbacks.attributes[0][1]
    loop.finish()


def test_an_array_changed_in_place_is_taken_back(replicas_of):
    class Begun(callbacks.Callback):
        def on_train_begin(self, logs=None):
            self.sums = np.zeros(2)

        def on_epoch_end(self, epoch, logs=None):
            self.sums += 1

    loop = trial(GraphLoop(replicas_of(1)), Begun, {})
    at_first = loop.state()
    loop.epoch()
    after_one = loop.state()
    loop.epoch()
    for saved, sums in ((after_one, [1, 1]), (at_first, [0, 0])):
        loop.restore(saved)
        assert loop.trial.callbacks._callbacks[0].sums.tolist() == sums
    loop.finish()


def test_each_callback_takes_the_state_of_its_own_class(replicas_of):
    loop = GraphLoop(replicas_of(1))
    both = [callbacks.EarlyStopping("loss"), Counting()]
    begin(loop, Given(build, DATA, callbacks=lambda config: both))
    loop.epoch()
    saved = loop.state()
    loop.finish()
    other = Counting()
    trial(loop, lambda: other, {}).restore(saved)

    assert (other.count, other.seen) == (1, [0])
    assert not hasattr(other, "wait")
    loop.finish()


class Zeroing(callbacks.Callback):
    """Stops at once, and changes the weights when training ends, as restored best ones do."""

    def on_epoch_end(self, epoch, logs=None):
        self.model.stop_training = True

    def on_train_end(self, logs=None):
        self.model.set_weights([np.zeros_like(each) for each in self.model.get_weights()])


def test_the_state_of_an_epoch_is_that_before_training_ended(replicas_of):
    loop = GraphLoop(replicas_of(1))
    begin(loop, Given(build, DATA, callbacks=lambda config: [Zeroing()]), {})
    loop.epoch()
    assert not any(np.any(each) for each in loop.trial.program.model.get_weights())
    saved = loop.epoch_state()
    fresh = GraphLoop(replicas_of(1))
    begin(fresh, Given(build, DATA), {})
    fresh.restore(saved)
    assert any(np.any(each) for each in fresh.trial.program.model.get_weights())


def test_callbacks_draw_anew_in_each_epoch(replicas_of):
    drawn, loop = [], GraphLoop(replicas_of(1))
    draws = callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: drawn.append(np.random.random())  # noqa: NPY002
    )
    begin(loop, Given(build, DATA, callbacks=lambda config: [draws]), {})
    for _ in range(2):
        loop.epoch()
    assert drawn[0] != drawn[1]
