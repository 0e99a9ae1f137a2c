"""A trial that keeps its best epoch: what it reports, and the model in its checkpoints."""

import itertools
import sys

import keras
import numpy as np
import pytest
import ray
from guards import slow

import tune_tf
from tune_tf.constraint import Constraint, is_feasible
from tune_tf.objective import Objective
from tune_tf.parallelism import Asynchronous, ModelParallel, MultiWorker
from tune_tf.ranking import KeepBest
from tune_tf.training.export import trained_model
from tune_tf.workload import Data, Workload

ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Ray's workers cannot import it

pytestmark = pytest.mark.tf

VAL_LOSS = KeepBest(Objective("val_loss", "min"))


class Worsening(Workload):
    """A regression that learns for some epochs and then goes wrong, as its learning rate says."""

    def load_data(self, config):
        rng = np.random.default_rng(0)
        x = rng.normal(size=(32, 4)).astype("float32")
        y = x.sum(1, keepdims=True) + rng.normal(size=(32, 1)).astype("float32")
        return Data((x, y), (x[:16], y[:16]))

    def build_model(self, config):
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.02), "mse", metrics=["mae"])
        return model

    def callbacks(self, config):
        def rate(epoch, _):
            return config.get("late", 0.7) if epoch >= config.get("good", 3) else 0.02

        made = [keras.callbacks.LearningRateScheduler(rate)]
        for monitor, mode in config.get("stopping", ()):
            stopping = keras.callbacks.EarlyStopping
            made.append(stopping(monitor, mode=mode, patience=1, restore_best_weights=True))
        return made

    def global_batch_size(self, config):
        return 8


def validated(trial, folder, config):
    """Return the loss of the model that a checkpoint keeps, as Keras evaluates it."""
    trial.save(str(folder))
    workload = Worsening()
    model = trained_model(workload, config, folder)
    return model.evaluate(*workload.load_data(config).validation, verbose=0, return_dict=True)


@pytest.mark.parametrize(
    "settings",
    [{}, slow({"loop": "fit"}), slow({"parallelism": ModelParallel(num_stages=1)})],
    ids=["graph", "fit", "a stage"],
)
def test_the_best_epoch_is_reported_and_kept(settings, tmp_path):
    trial = tune_tf.trainable(Worsening, seed=1, keep=VAL_LOSS, **settings)(config={})
    reports = [trial.train() for _ in range(6)]
    losses = [each["val_loss"] for each in reports]
    best = int(np.argmin(losses))
    assert 0 < best < 5  # it has gone wrong
    bests = list(itertools.accumulate(losses, min))
    assert [each["kept/val_loss"] for each in reports] == bests
    assert reports[-1]["kept/training_iteration"] == best + 1
    assert reports[-1]["kept/val_mae"] == reports[best]["val_mae"]
    kept = validated(trial, tmp_path, {})
    assert kept == pytest.approx({"loss": losses[best], "mae": reports[best]["val_mae"]}, abs=1e-6)


def test_a_restored_trial_goes_on_from_its_last_epoch_and_keeps_its_best_one(tmp_path):
    make = tune_tf.trainable(Worsening, seed=1, keep=VAL_LOSS)
    whole, first, second = (make(config={}) for _ in range(3))
    expected = [whole.train() for _ in range(6)]
    for _ in range(4):
        first.train()
    first.save(str(tmp_path / "a"))
    second.restore(str(tmp_path / "a"))
    reports = [second.train() for _ in range(2)]
    for name in ("val_loss", "kept/val_loss", "kept/training_iteration"):
        assert [each[name] for each in reports] == [each[name] for each in expected[4:]]
    kept = validated(second, tmp_path / "b", {})
    assert kept["loss"] == pytest.approx(reports[-1]["kept/val_loss"], abs=1e-6)
    assert second.reset({"good": 0})
    assert second.train()["kept/training_iteration"] == 1  # of the next trial


@pytest.mark.parametrize(
    ("loop", "stopping", "good"),
    [
        pytest.param("graph", ("val_loss", "min"), 3, id="by the objective"),
        slow("fit", ("mae", "max"), 9, id="by another metric, at the best epoch"),
    ],
)
def test_early_stopping_that_restores_weights_leaves_value_and_model_together(
    loop, stopping, good, tmp_path
):
    config = {"stopping": [stopping], "good": good}
    trial = tune_tf.trainable(Worsening, seed=1, keep=VAL_LOSS, loop=loop)(config=config)
    reports = [trial.train()]
    while not reports[-1]["done"]:
        reports.append(trial.train())
    best = min(each["val_loss"] for each in reports)
    assert reports[-1]["kept/val_loss"] == best
    assert validated(trial, tmp_path, config)["loss"] == pytest.approx(best, abs=1e-6)


def test_a_diverged_epoch_reports_nothing_kept(tmp_path):
    trial = tune_tf.trainable(Worsening, seed=1, keep=VAL_LOSS)(config={"late": 1e30})
    reports = [trial.train() for _ in range(4)]
    assert reports[-1]["stop_reason"] == "diverged"
    assert not [name for name in reports[-1] if name.startswith("kept/")]


@pytest.mark.parametrize("text", [slow("<= 1e9"), slow("<= 1e-9"), ">= 4"])
def test_an_epoch_that_violates_a_constraint_is_the_best_only_if_all_do(text):
    limit = Constraint.parse("loss", text)
    rule = KeepBest(Objective("val_loss", "min"), (limit,))
    trial = tune_tf.trainable(Worsening, seed=1, keep=rule)(config={"late": 1.0})
    reports = [trial.train() for _ in range(5)]
    feasible = [each for each in reports if is_feasible([limit], each)] or reports
    best = min(each["val_loss"] for each in feasible)
    assert reports[-1]["kept/val_loss"] == best
    assert (best == min(each["val_loss"] for each in reports)) is (text != ">= 4")


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize(
    "kind", [MultiWorker(), Asynchronous(num_workers=1)], ids=lambda kind: kind.kind
)
def test_processes_of_a_trial_keep_the_best_epoch(kind, tmp_path):
    trial = tune_tf.trainable(Worsening, kind, seed=1, keep=VAL_LOSS)(config={})
    try:
        reports = [trial.train() for _ in range(5)]
        kept = validated(trial, tmp_path, {})
    finally:
        trial.stop()
    best = min(each["val_loss"] for each in reports)
    assert reports[-1]["val_loss"] > best
    assert kept["loss"] == pytest.approx(best, abs=1e-6)
