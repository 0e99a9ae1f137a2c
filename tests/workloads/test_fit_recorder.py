"""A hypermodel's own ``fit``: what it chooses is searched, and the trial trains with it."""

import numpy as np
import pytest

pytest.importorskip("keras_tuner")

import keras
import keras_tuner
from hypermodels import DATA, X, Y, branches, space, workload_of

from tune_tf import Choice, Data, Float, Int
from tune_tf.data.config_reads import ConfigReads
from tune_tf.errors import WorkloadError


def fitting(fit):
    """Return a hypermodel with a ``fit`` of its own."""

    class Fitted(keras_tuner.HyperModel):
        def build(self, hp):
            return hp.Choice("model", ["a", "b"])

        def fit(self, hp, model, *args, **kwargs):
            return fit(self, hp, model, *args, **kwargs)

    return Fitted()


def choosing(self, hp, model, x, y, validation_data, callbacks=None, **kwargs):
    if hp.Boolean("scale"):
        x = keras.ops.convert_to_tensor(x) * 2
    with hp.conditional_scope("model", ["b"]):
        hp.Float("temperature", 1, 2)
    return model.fit(
        x,
        y,
        validation_data=validation_data,
        batch_size=hp.Choice("batch_size", [2, 3]),
        class_weight={0: hp.Float("weight", 1, 2), 1: 1.0, 2: 1.0},
        callbacks=[*callbacks, keras.callbacks.EarlyStopping(patience=hp.Int("patience", 1, 9))],
        **kwargs,
    )


CHOSEN = {"model": "a", "scale": True, "batch_size": 3, "weight": 1.5, "patience": 7}


def test_what_fit_chooses_is_searched():
    assert space(fitting(choosing)) == {
        "model": Choice(["a", "b"]),
        "scale": Choice([True, False]),
        "temperature": Float(1, 2, when={"model": "b"}),
        "batch_size": Choice([2, 3]),
        "weight": Float(1, 2),
        "patience": Int(1, 9),
    }


def test_the_trial_trains_with_what_fit_chose():
    workload = workload_of(fitting(choosing))
    data = workload.load_data(CHOSEN)

    np.testing.assert_array_equal(data.train[0], 2 * X)
    assert data.validation is not None
    assert data.test is DATA.test
    assert data.class_weight == {0: 1.5, 1: 1.0, 2: 1.0}
    assert workload.global_batch_size(CHOSEN) == 3


def test_callbacks_of_fit_are_those_of_the_trial():
    workload = workload_of(fitting(choosing), callbacks=[keras.callbacks.TerminateOnNaN()])
    nan, early = workload.callbacks(CHOSEN)

    assert (type(nan).__name__, early.patience) == ("TerminateOnNaN", 7)
    assert workload.callbacks(CHOSEN)[0] is not nan


def test_data_are_loaded_again_only_for_what_fit_asks():
    plain = workload_of(branches)
    reads = ConfigReads({"deep": True, "kind": "a"})
    plain.load_data(reads.recording)
    assert dict(reads.digests) == {}

    own, reads = workload_of(fitting(choosing)), ConfigReads({**CHOSEN, "unrelated": 1})
    own.load_data(reads.recording)
    assert {path[0] for path in reads.digests} == set(CHOSEN)


def test_arguments_of_a_search_reach_the_trial():
    weights = np.ones(6, "float32")
    workload = workload_of(branches, data=Data(train=(X, Y, weights)), batch_size=5, verbose=0)

    assert workload.global_batch_size({}) == 5
    assert workload.load_data({}).train[2] is weights
    assert workload_of(branches).global_batch_size({}) == 32


def trains_by_tape(self, hp, model, x, y, **kwargs):
    return model(x)


def returns_a_number(self, hp, model, *args, **kwargs):
    return min(model.fit(*args, **kwargs).history["val_loss"])


@pytest.mark.parametrize(
    ("fit", "match"),
    [
        pytest.param(trains_by_tape, "TypeError: .* not callable; .*train_step.*loop=", id="tape"),
        pytest.param(
            lambda self, hp, model, *args, **kw: model.optimizer,
            "no attribute 'optimizer'",
            id="part",
        ),
        pytest.param(returns_a_number, "no attribute 'history'", id="history"),
        pytest.param(
            lambda self, hp, model, *args, **kw: 0.5,
            r"it returns 0.5 after 0 call\(s\)",
            id="never",
        ),
        pytest.param(
            lambda self, hp, model, *args, **kw: [model.fit(*args, **kw) for _ in "12"],
            r"after 2 call\(s\) of model.fit; .*train_step",
            id="twice",
        ),
        pytest.param(
            lambda self, hp, model, *args, **kw: {"loss": 1.0} if model.fit(*args) else 0,
            r"it returns \{'loss': 1.0\} after 1 call",
            id="dict",
        ),
        pytest.param(
            lambda self, hp, model, *args, **kw: model.fit(*args, epochs=hp.Int("epochs", 2, 3)),
            r"model.fit gets epochs, which has no counterpart: .* the sweep's `epochs`",
            id="epochs",
        ),
    ],
)
def test_a_fit_that_trains_in_its_own_way_is_refused(fit, match):
    with pytest.raises(WorkloadError, match=f"the fit of the hypermodel raised .*{match}"):
        space(fitting(fit))


def test_the_order_of_rows_is_as_fit_wants_it():
    def fit(self, hp, model, *args, **kwargs):
        return model.fit(*args, shuffle=hp.Boolean("shuffle", default=True), **kwargs)

    workload = workload_of(fitting(fit))
    given = [workload.shuffle({"model": "a", "shuffle": each}) for each in (True, False)]
    assert given == [True, False]
