"""What a workload keeps from one trial to the next begins each trial as it began the first."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from guards import guarded, slow
from trials import Given, begin, bits, draw, run

from tune_tf.errors import WorkloadError
from tune_tf.training.core.fit_loop import FitLoop
from tune_tf.training.core.loop import GraphLoop
from tune_tf.training.reuse.workload_state import WorkloadState

pytestmark = pytest.mark.tf
layers = keras.layers
DATA = draw(45, 19)


def on_top_of(base, config):
    model = keras.Sequential([keras.Input((6,)), base, layers.Dense(config.get("width", 3))])
    model.add(layers.Dense(3))
    model.compile(
        keras.optimizers.Adam(config.get("rate", 0.05)),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return model


def base_model():
    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [keras.Input((6,)), layers.Dense(4, activation="relu"), layers.BatchNormalization()]
    )


class KeepsBase(Given):
    """Makes a base model once, which each trial trains further."""

    def __init__(self, trainable=True):
        super().__init__(None, DATA)
        self.base = {"model": base_model()}
        self.base["model"].trainable = trainable

    def build_model(self, config):
        return on_top_of(self.base["model"], config)


class MakesBaseOnce(Given):
    """Makes a base model in the first trial and keeps it."""

    def __init__(self, trainable=True):
        super().__init__(None, DATA)
        self._trainable = trainable

    def build_model(self, config):
        if not hasattr(self, "base"):
            self.base = base_model()
            self.base.trainable = self._trainable
        return on_top_of(self.base, config)


@pytest.mark.parametrize("trainable", guarded([True, False], [False]))
def test_a_base_model_of_the_workload_begins_each_trial_anew(trainable, replicas_of):
    workload = KeepsBase(trainable)
    loop = GraphLoop(workload, replicas_of(1))
    configs = [{"rate": 0.05}, {"rate": 0.1}, {"width": 4}, {"rate": 0.05}, {"width": 4}]
    warm = [bits(run(loop, workload, config)) for config in configs]

    fresh_one = KeepsBase(trainable)
    fresh = [
        bits(run(GraphLoop(one, replicas_of(1)), one, config))
        for config, one in zip(configs, [fresh_one, *map(KeepsBase, [trainable] * 4)], strict=True)
    ]
    assert warm == fresh


@pytest.mark.slow
def test_a_base_model_of_the_workload_begins_each_trial_anew_under_fit(replicas_of):
    workload = KeepsBase()

    def trial():
        loop = FitLoop(workload, replicas_of(1))
        loop.start({}, DATA, 1)
        found = [loop.epoch() for _ in range(2)]
        loop.finish()
        return found

    assert trial() == trial()


@pytest.mark.parametrize("trainable", [True, False], ids=["trained", "frozen"])
def test_what_build_model_keeps_on_the_workload_is_made_anew_for_each_trial(trainable, replicas_of):
    workload = MakesBaseOnce(trainable)
    loop = GraphLoop(workload, replicas_of(1))
    first, second = (bits(run(loop, workload)) for _ in range(2))

    assert first == second


GLOBAL = {}


def with_global_base(config):
    if not GLOBAL:
        GLOBAL["base"] = base_model()
    return on_top_of(GLOBAL["base"], config)


def test_a_global_base_model_that_an_earlier_trial_trained_is_refused(replicas_of):
    workload = Given(with_global_base, DATA)
    loop = GraphLoop(workload, replicas_of(1))
    run(loop, workload)

    with pytest.raises(WorkloadError, match="variable\\(s\\) of an earlier trial"):
        run(loop, workload)


class SetsAgain(Given):
    """Sets an attribute in both methods; build_model reads what load_data set."""

    def load_data(self, config):
        self.width = config["width"]
        return DATA

    def build_model(self, config):
        self.width = self.width + 1
        return on_top_of(base_model(), {"width": self.width})


def test_what_load_data_sets_again_is_not_taken_away(replicas_of):
    workload = SetsAgain(None, DATA)
    loop = GraphLoop(workload, replicas_of(1))
    widths = []
    for width in (3, 5, 3):
        run(loop, workload, {"width": width}, epochs=1)
        widths.append(workload.width)

    assert widths == [4, 6, 4]


def test_two_models_of_one_base_do_not_train_in_one_process(replicas_of):
    workload = KeepsBase()
    first, second = (GraphLoop(workload, replicas_of(1)) for _ in range(2))
    begin(first, workload)

    with pytest.raises(WorkloadError, match="KeepsBase keeps 6 variables on self"):
        begin(second, workload)


def test_a_workload_without_variables_keeps_none(replicas_of):
    workload = Given(lambda config: on_top_of(base_model(), config), DATA)
    workload.table = np.zeros(3)

    assert WorkloadState.of(workload)._values == []
    assert WorkloadState.of(workload) is WorkloadState.of(workload)


class CountsWith(Given):
    """Weighs its loss by the number of calls of its step that it keeps itself."""

    def __init__(self):
        super().__init__(lambda config: on_top_of(base_model(), config), DATA)
        self.kept, self.numbers = {}, ([],)
        self.helper = Helper()

    def calls(self):
        raise NotImplementedError

    def train_step(self, model, batch):
        x, y = batch
        with tf.GradientTape() as tape:
            loss = self.calls() * model.compute_loss(x, y, model(x, training=True))
        variables = model.trainable_variables
        model.optimizer.apply(tape.gradient(loss, variables), variables)
        return {"loss": loss}


class Helper:
    calls = 0


class ByAttribute(CountsWith):
    count = 0

    def calls(self):
        self.count += 1
        return float(self.count)


class ByDict(CountsWith):
    def calls(self):
        self.kept["calls"] = self.kept.get("calls", 0) + 1
        return float(self.kept["calls"])


class ByList(CountsWith):
    def calls(self):
        self.numbers[0].append(0)
        return float(len(self.numbers[0]))


class ByObject(CountsWith):
    def calls(self):
        self.helper.calls += 1
        return float(self.helper.calls)


class ByVariable(CountsWith):
    count = None

    def calls(self):
        if self.count is None:
            self.count = tf.Variable(0.0, trainable=False)
        return self.count.assign_add(1.0)


class ByVariableInDict(CountsWith):
    def calls(self):
        if "calls" not in self.kept:
            self.kept["calls"] = tf.Variable(0.0, trainable=False)
        return self.kept["calls"].assign_add(1.0)


class ByGlobalVariable(CountsWith):
    def calls(self):
        if "calls" not in GLOBAL:
            GLOBAL["calls"] = tf.Variable(0.0, trainable=False)
        return GLOBAL["calls"].assign_add(1.0)


@pytest.mark.parametrize(
    ("kind", "num_replicas"),
    [
        (ByAttribute, 1),
        (ByVariable, 1),
        *(slow(kind, 1) for kind in (ByDict, ByList, ByObject, ByVariableInDict)),
        slow(ByVariableInDict, 2),
    ],
)
def test_what_a_train_step_sets_is_of_that_trial_alone(kind, num_replicas, replicas_of):
    workload = kind()
    loop = GraphLoop(workload, replicas_of(num_replicas))
    configs = [{"rate": 0.05}, {"rate": 0.1}, {"width": 4}]
    _, *warm = [bits(run(loop, workload, config)) for config in configs]

    fresh = []
    for config in configs[1:]:
        one = kind()
        fresh.append(bits(run(GraphLoop(one, replicas_of(num_replicas)), one, config)))
    assert warm == fresh
    assert loop.num_programs == (3 if "Variable" in kind.__name__ else 2)


@pytest.mark.parametrize(
    ("setting", "value", "policy"),
    [
        ("floatx", "float64", "float64"),
        ("epsilon", 0.1, "float32"),
        ("image_data_format", "channels_first", "float32"),
        ("dtype_policy", keras.DTypePolicy("mixed_bfloat16"), "mixed_bfloat16"),
    ],
)
def test_a_setting_of_keras_is_of_the_trial_whose_build_model_changed_it(
    setting, value, policy, replicas_of
):
    found = []

    def build(config):
        if config:
            getattr(keras.config, f"set_{setting}")(value)
        model = keras.Sequential([keras.Input((6,)), layers.Dense(3)])
        model.compile("sgd", "sparse_categorical_crossentropy")
        found.append((getattr(keras.config, setting)(), model.layers[0].dtype_policy.name))
        return model

    workload = Given(build, draw(8))
    loop = GraphLoop(workload, replicas_of(1))
    for config in ({}, {"other": True}, {"other": True}, {}):
        begin(loop, workload, config)
        loop.finish()

    plain, other, again, last = found
    assert plain[0] != value
    assert other == again == (value, policy)
    assert last == plain


@pytest.mark.parametrize("num_replicas", guarded([1, 2], [1]))
def test_a_global_variable_that_an_earlier_trials_step_made_is_refused(num_replicas, replicas_of):
    GLOBAL.clear()
    workload = ByGlobalVariable()
    loop = GraphLoop(workload, replicas_of(num_replicas))
    run(loop, workload)

    with pytest.raises(WorkloadError, match="ByGlobalVariable uses 1 variable"):
        run(loop, workload)


class BuildsFromDict(Given):
    """Makes a layer wider each time it is asked; load_data sets the dict's other number."""

    def __init__(self):
        super().__init__(None, DATA)
        self.kept = {"built": 2, "loaded": 0}

    def load_data(self, config):
        self.kept["loaded"] = config["width"]
        return DATA

    def build_model(self, config):
        self.kept["built"] += 1
        return on_top_of(base_model(), {"width": self.kept["built"] + self.kept["loaded"]})


def test_dict_entries_of_build_model_are_undone_those_of_load_data_kept(replicas_of):
    workload = BuildsFromDict()
    loop = GraphLoop(workload, replicas_of(1))
    for width in (3, 5, 3):
        run(loop, workload, {"width": width}, epochs=1)
        assert workload.kept == {"built": 3, "loaded": width}


class OwnBase(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden = layers.Dense(4)
        self.calls = []

    def call(self, x):
        self.calls.append(1)
        return self.hidden(x)


def test_a_base_model_of_the_users_own_class_is_left_to_keras(replicas_of):
    workload = Given(None, DATA)
    workload.base = OwnBase()
    workload.base(np.zeros((1, 6)))
    workload._build = lambda config: on_top_of(workload.base, config)
    loop = GraphLoop(workload, replicas_of(1))
    first, second = (bits(run(loop, workload)) for _ in range(2))
    assert first == second


@pytest.mark.slow
def test_what_a_train_step_under_fit_sets_is_of_that_trial_alone(replicas_of):
    class Counts(keras.Sequential):
        def train_step(self, *args):
            workload.kept["calls"] = workload.kept.get("calls", 0) + 1
            return super().train_step(*args)

    def build(config):
        model = Counts([keras.Input((6,)), layers.Dense(3)])
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        seen.append(dict(workload.kept))
        return model

    workload, seen = Given(build, DATA), []
    workload.kept = {}
    loop = FitLoop(workload, replicas_of(1))
    for _ in range(2):
        loop.start({}, DATA, 1)
        loop.epoch()
        loop.finish()
    assert seen == [{}, {}]
