"""What callbacks remember goes with a trial, and with no other trial."""

import json
from collections import Counter, OrderedDict, defaultdict, deque

import keras
import numpy as np
import pytest
from trials import Given, begin, draw, furthest_values

from tune_tf.errors import CheckpointError
from tune_tf.training.callback_state import decode, encode
from tune_tf.training.checkpoint import Checkpoint
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


class Remembering(callbacks.Callback):
    """Has state of every kind, changed in place and anew, and reports what follows from it."""

    def __init__(self):
        super().__init__()
        self.setting = 3
        self.seen = []
        self.by_kind = {"a": {1: (0.5, None)}, (1, 2): {"x", "y"}}
        self.counts = np.zeros(3, "int64")
        self.best = np.float32(np.inf)
        self._lately = deque(maxlen=2)
        self.told = defaultdict(list)
        self.number = Counter()

    def on_epoch_end(self, epoch, logs=None):
        self.seen.append(logs["loss"])
        self.by_kind["a"][epoch] = (logs["loss"], True)
        self.counts[epoch % 3] += 1
        self.best = np.float32(min(self.best, logs["loss"]))
        self._lately.append(epoch)
        self.told[epoch % 2].append(epoch)
        self.number["epochs"] += 1
        self.weights = [w * 0.5 for w in self.model.get_weights()]
        logs["remembered"] = (
            float(sum(self.seen) + self.counts @ [1, 10, 100] + self.best + sum(self._lately))
            + sum(map(float, self.told[0]))
            + self.number["epochs"]
            + abs(self.weights[0]).sum()
        )


#: Callbacks that go by what they remember.
CASES = {
    "EarlyStopping": lambda: callbacks.EarlyStopping(
        "loss", patience=3, min_delta=100, restore_best_weights=True
    ),
    "ReduceLROnPlateau": lambda: callbacks.ReduceLROnPlateau(
        "loss", factor=0.5, patience=2, cooldown=1, min_delta=100
    ),
    "LearningRateScheduler": lambda: callbacks.LearningRateScheduler(lambda e, rate: rate * 0.7),
    "SwapEMAWeights": callbacks.SwapEMAWeights,
    "History": callbacks.History,
    "of one's own": Remembering,
}


def stopping_early():
    """A workload whose trials keep the weights of their best epoch."""
    return Given(build, DATA, callbacks=lambda config: [CASES["EarlyStopping"]()])


def trial(loop, make, config, folder=None):
    """Begin a trial, from a checkpoint if there is one."""
    workload = Given(build, DATA, callbacks=lambda config: [make()])
    data = workload.load_data(config)
    if isinstance(loop, FitLoop):
        loop.start(workload, config, data, 1234)
    else:
        begin(loop, workload, config)
    if folder is not None:
        loop.restore(Checkpoint.read(folder))
    return loop


def to_its_end(loop, most):
    """Train on; return the metrics of the epochs, the weights and the history of the model."""
    found = []
    while len(found) < most and not loop.stop_training:
        found.append(loop.epoch())
    weights = weights_of(loop.state())
    loop.finish()
    return found, weights


def weights_of(checkpoint):
    return [*checkpoint.model, *checkpoint.optimizer]


FIT = pytest.param("fit", marks=pytest.mark.slow)


@pytest.fixture(scope="module", params=["graph", FIT])
def loop_of(request, replicas_of):
    """Return a function that makes a loop."""
    kind = GraphLoop if request.param == "graph" else FitLoop
    return lambda: kind(replicas_of(1))


@pytest.fixture(scope="module")
def used(loop_of):
    """A loop that has served other trials."""
    loop = loop_of()
    for ema in (False, True):
        to_its_end(trial(loop, Remembering, {"ema": ema}), 2)
    return loop


@pytest.mark.parametrize(
    ("loop_of", "name"),
    [
        *(("graph", name) for name in ("EarlyStopping", "of one's own")),
        *(
            pytest.param(loop, name, marks=pytest.mark.slow)
            for loop, name in (
                *(
                    ("graph", name)
                    for name in CASES
                    if name not in ("EarlyStopping", "of one's own")
                ),
                *(("fit", name) for name in ("of one's own", "EarlyStopping", "SwapEMAWeights")),
            )
        ),
    ],
    indirect=["loop_of"],
    scope="module",
)
def test_a_restored_trial_is_equal_in_a_used_and_a_fresh_process(name, loop_of, used, tmp_path):
    make, config = CASES[name], {"ema": "EMA" in name}
    trial(used, make, config)
    used.epoch(), used.epoch()
    used.state().write(tmp_path)
    used.epoch()  # what comes after the checkpoint is not in it
    used.finish()
    restored = to_its_end(trial(used, make, config, tmp_path), 4)
    fresh = to_its_end(trial(loop_of(), make, config, tmp_path), 4)
    without_break = to_its_end(trial(used, make, config), 6)

    assert restored[0] == fresh[0]
    assert furthest_values(restored[1], fresh[1]) == 0
    assert len(without_break[0]) == len(restored[0]) + 2
    keys = without_break[0][-1].keys() - _RANDOM.get(type(used), set())
    for one, other in zip(restored[0], without_break[0][2:], strict=True):
        assert {key: one[key] for key in keys} == pytest.approx({key: other[key] for key in keys})


#: ``fit`` shuffles anew after a restore, so that only what counts epochs is comparable there.
_RANDOM = {FitLoop: {"loss", "val_loss", "remembered"}}


def test_a_trial_that_stops_early_ends_with_its_best_weights(loop_of, tmp_path):
    loop = trial(loop_of(), CASES["EarlyStopping"], {})
    loop.epoch()
    best = (
        loop._current.model.get_weights()
        if isinstance(loop, FitLoop)
        else loop.trial.program.model.get_weights()
    )
    loop.epoch()
    loop.state().write(tmp_path)
    loop.finish()
    loop = trial(loop, CASES["EarlyStopping"], {}, tmp_path)
    to_its_end_loop(loop)
    ended = loop.state()
    ended.write(tmp_path)
    loop.finish()

    assert (ended.epoch, ended.has_ended) == (4, True)
    exported = trained_model(stopping_early(), {}, tmp_path)
    assert furthest_values(exported.get_weights(), best) == 0


def to_its_end_loop(loop):
    while not loop.stop_training:
        loop.epoch()


def test_a_trial_that_reaches_its_last_epoch_is_exported_as_fit_would_leave_it(loop_of, tmp_path):
    loop = trial(loop_of(), CASES["EarlyStopping"], {})
    loop.epoch()
    best = loop.state().model
    loop.epoch(), loop.epoch()
    loop.state().write(tmp_path)  # Tune's last checkpoint, at the limit of epochs
    loop.finish()

    exported = trained_model(stopping_early(), {}, tmp_path)
    kept = [each for each in best if each.dtype == "float32"]  # no states of random generators
    assert furthest_values(exported.get_weights()[: len(kept)], kept) == 0


def test_averages_of_the_weights_do_not_overwrite_the_best_ones(replicas_of, tmp_path):
    loop = GraphLoop(replicas_of(1))
    trial(loop, CASES["EarlyStopping"], {"ema": True})
    loop.epoch()
    best = loop.trial.program.model.get_weights()
    to_its_end_loop(loop)
    loop.state().write(tmp_path)

    exported = trained_model(stopping_early(), {"ema": True}, tmp_path)
    assert furthest_values(exported.get_weights(), best) == 0


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        -1.5,
        float("inf"),
        "text",
        [1, [2.0, "x"]],
        (1, (None,)),
        {"a": 1, 2: "b", (1, 2): [3], None: 4, True: 5},
        {"array": "no digest", "list": [1]},
        {1, 2},
        frozenset({"a"}),
        OrderedDict([("b", 1), ("a", 2)]),
        Counter("aab"),
        defaultdict(list, {1: [2]}),
        deque([1, 2], maxlen=2),
        np.float32(0.1),
        np.arange(6, dtype="int16").reshape(2, 3),
        np.array(["a", "bc"]),
        np.zeros((0, 3)),
        [np.ones(2), np.ones(2)],
        {"nested": [{"deep": (np.float64(1.5),)}]},
    ],
    ids=repr,
)
def test_a_value_comes_back_as_it_was(value):
    arrays = {}
    text = json.dumps(encode(value, arrays))
    back = decode(json.loads(text), arrays)

    assert type(back) is type(value)
    assert repr(back) == repr(value)
    assert getattr(back, "dtype", None) == getattr(value, "dtype", None)
    assert getattr(back, "maxlen", None) == getattr(value, "maxlen", None)


@pytest.mark.parametrize(
    "value",
    [object(), print, keras.losses.Huber(), [object()], np.array([object()]), b"bytes", 1j],
    ids=["object", "function", "loss", "in a list", "objects", "bytes", "complex"],
)
def test_what_is_no_plain_state_is_told(value):
    with pytest.raises(TypeError, match="is not plain state"):
        encode(value, {})


def test_a_list_in_itself_is_no_state_and_no_endless_loop(replicas_of):
    class Circular(callbacks.Callback):
        def on_train_begin(self, logs=None):
            self.around = []
            self.around.append(self.around)

    loop = trial(GraphLoop(replicas_of(1)), Circular, {})

    assert "around" not in loop.state().callbacks.attributes[0][1]
    loop.finish()


class Counting(callbacks.Callback):
    """Counts in every way, and stops by its count."""

    def __init__(self):
        super().__init__()
        self.count = 0
        self._all = {"epochs": []}

    def on_epoch_end(self, epoch, logs=None):
        self.count += 1
        self._all["epochs"].append(epoch)
        logs["count"] = self.count + 10 * len(self._all["epochs"])


def test_an_array_changed_in_place_cannot_be_taken_back_silently(replicas_of):
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
    loop.restore(after_one)

    assert loop.trial.callbacks._callbacks[0].sums.tolist() == [1, 1]
    with pytest.raises(CheckpointError, match="an array was changed in place: create a new array"):
        loop.restore(at_first)
    loop.finish()


def test_each_callback_takes_the_state_of_its_own_class(replicas_of, tmp_path):
    loop = GraphLoop(replicas_of(1))
    both = [Counting(), Remembering()]
    begin(loop, Given(build, DATA, callbacks=lambda config: both))
    loop.epoch()
    loop.state().write(tmp_path)
    loop.finish()
    other = Remembering()
    trial(loop, lambda: other, {}, tmp_path)

    assert other.number == {"epochs": 1}
    assert not hasattr(other, "count")
    loop.finish()
