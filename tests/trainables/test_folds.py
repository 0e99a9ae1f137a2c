"""Trials of several models, driven by hand in one process and on a Ray cluster."""

import math
import os
import signal
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import ray
from ray import tune

from tune_tf.data import FoldedRows
from tune_tf.errors import CheckpointError, DamagedCheckpointError
from tune_tf.objective import Objective
from tune_tf.parallelism import Ensemble, Folds, Mirrored
from tune_tf.ranking import KeepBest
from tune_tf.trainables import trainable
from tune_tf.trainables.folds import best_subtask, summary
from tune_tf.workload import Data, Workload

ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Ray's workers cannot import it

pytestmark = pytest.mark.tf

FOLDS = Folds(3, grouped=True, num_devices=2)
METRICS = ("loss", "accuracy", "val_loss", "val_accuracy")
PLAIN = {"learning_rate": 0.1}


class Dies(keras.callbacks.Callback):
    """Ends its process in the third epoch of whoever gets there first, and notes it in a folder."""

    def __init__(self, folder):
        super().__init__()
        self.folder = folder

    def on_epoch_begin(self, epoch, logs=None):
        note = Path(self.folder, "note")
        if epoch == 2 and not note.exists():
            note.touch()
            os.kill(os.getpid(), signal.SIGKILL)


class Stops(keras.callbacks.Callback):
    """Ends training below a loss."""

    def __init__(self, loss):
        super().__init__()
        self.loss = loss

    def on_epoch_end(self, epoch, logs=None):
        self.model.stop_training = logs["loss"] < self.loss


class Patients(Workload):
    """Rows in three groups of very different sizes, with weights."""

    def load_data(self, config):
        rng = np.random.default_rng(0)
        x = rng.normal(size=(81, 6)).astype("float32")
        y = (x @ rng.normal(size=(6, 3))).argmax(-1).astype("int32")
        weight = rng.uniform(0.5, 1.5, size=81)
        return Data(
            train=(x[:65], y[:65], weight[:65]),
            validation=(x[65:], y[65:]),
            groups=np.repeat(["a", "b", "c"], [40, 25, 16]),
        )

    def build_model(self, config):
        model = keras.Sequential(
            [
                keras.Input((6,)),
                keras.layers.Dense(8, "relu"),
                keras.layers.Dropout(0.2),
                keras.layers.Dense(3),
            ]
        )
        model.compile(
            keras.optimizers.Adam(config["learning_rate"]),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
        return model

    def callbacks(self, config):
        if "dies" in config:
            return [Dies(config["dies"])]
        if "log" in config:
            return [keras.callbacks.CSVLogger(config["log"])]
        return [Stops(config["stop_below"])] if "stop_below" in config else []

    def global_batch_size(self, config):
        return 16


class OneFold(Patients):
    """A fold as if it were all there is."""

    def __init__(self, fold):
        self.fold = fold

    def load_data(self, config):
        rows = FoldedRows(super().load_data(config), FOLDS, seed=1).rows(self.fold)
        return Data(rows.train, rows.validation)


def alone(workload, config, num_epochs, checkpoint=None):
    """Return the metrics of each epoch of a model that is trained by itself, until it ends."""
    trial = trainable(workload, Mirrored(), seed=1)(config=dict(config))
    if checkpoint is not None:
        trial.load_checkpoint(str(checkpoint))
    told = []
    while len(told) < num_epochs and not (told and told[-1]["done"]):
        told.append(trial.train())
    trial.stop()
    return [metrics_of(result) for result in told]


def metrics_of(result, prefix=""):
    return [result[f"{prefix}{name}"] for name in METRICS]


def by_fold(results):
    """Return, by fold, the metrics of each result."""
    return [[metrics_of(result, f"fold_{i}/") for result in results] for i in range(3)]


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    """What a trial gave whose folds take turns in this process, and its checkpoint."""
    folder = tmp_path_factory.mktemp("checkpoint")
    keep = KeepBest(Objective("val_loss", "min"))
    settings = {"seed": 1, "log_folder": folder, "keep": keep}
    trial = trainable(Patients(), Folds(3, grouped=True), **settings)(
        config=PLAIN | {"log": "log.csv"}
    )
    told = {"trial": trial, "folder": folder, "first": [trial.train() for _ in range(3)]}
    trial.save_checkpoint(str(folder))
    told["rest"] = [trial.train() for _ in range(3)]
    yield told
    trial.stop()


@pytest.fixture(scope="module")
def spread(history, ray_cluster):
    """What trials gave whose folds are trained in two processes, one after the other."""
    trial = trainable(Patients(), FOLDS, seed=1)(config=dict(PLAIN))
    told = {"begun": [trial.train() for _ in range(2)]}
    trial.reset(dict(PLAIN))
    trial.load_checkpoint(str(history["folder"]))
    told["restored"] = [trial.train() for _ in range(3)]
    trial.reset(PLAIN | {"stop_below": 0.56})
    told["stopping"] = [trial.train()]
    while not told["stopping"][-1]["done"]:
        told["stopping"].append(trial.train())
    trial.reset({"learning_rate": float("inf")})
    told["diverged"] = trial.train()
    trial.stop()
    return told


@pytest.fixture(scope="module")
def killed(ray_cluster, tmp_path_factory):
    """A trial under Tune of which a process died."""
    notes = tmp_path_factory.mktemp("dies")
    (trial,) = tune.run(
        trainable(Patients(), FOLDS, seed=1),
        config=PLAIN | {"dies": str(notes)},
        stop={"training_iteration": 6},
        checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1),
        max_failures=1,
        storage_path=str(notes),
        verbose=0,
    ).trials
    assert (notes / "note").exists()
    return trial


@pytest.fixture(scope="module")
def expected():
    """What each fold gives by itself in six epochs."""
    return [alone(OneFold(i), PLAIN, 6) for i in range(3)]


def test_each_fold_gives_the_numbers_that_it_gives_alone(history, expected):
    assert by_fold([*history["first"], *history["rest"]]) == expected


def test_a_trial_reports_mean_and_spread(history):
    result = history["first"][1]
    values = [result[f"fold_{i}/val_accuracy"] for i in range(3)]

    assert result["val_accuracy"] == pytest.approx(np.mean(values))
    assert result["val_accuracy_std"] == pytest.approx(np.std(values, ddof=1))


def test_the_best_fold_is_also_the_checkpoint_of_a_plain_trial(history, expected):
    best = min(range(3), key=lambda fold: expected[fold][2][2])

    (epoch,) = alone(OneFold(best), PLAIN, 1, history["folder"])
    assert epoch == expected[best][3]


def test_a_trial_keeps_the_folds_of_its_best_epoch(history):
    results = [*history["first"], *history["rest"]]
    best = min(results, key=lambda result: result["val_loss"])

    assert results[-1]["kept/training_iteration"] == best["training_iteration"]
    assert results[-1]["kept/val_loss"] == best["val_loss"]


def test_each_fold_writes_the_files_of_its_callbacks_into_its_own_folder(history):
    logs = sorted(history["folder"].glob("*/files/*/log.csv"))

    assert [path.parent.name for path in logs] == ["fold_0", "fold_1", "fold_2"]
    assert [path.read_text().count("epoch") for path in logs] == [1] * 3


def test_another_checkpoint_is_refused(history, tmp_path):
    np.savez(tmp_path / "trial.npz", head=np.array('{"epoch": 1}'))
    with pytest.raises(DamagedCheckpointError, match=r"lacks subtasks\.json"):
        history["trial"].load_checkpoint(str(tmp_path))
    (tmp_path / "subtasks.json").write_text('{"kind": "ensemble"}')
    with pytest.raises(CheckpointError, match="no checkpoint of a trial of kind 'folds' with 3"):
        history["trial"].load_checkpoint(str(tmp_path))


@pytest.mark.slow
def test_folds_in_processes_give_the_same_and_go_on_from_a_checkpoint(spread, expected):
    assert by_fold(spread["begun"]) == [fold[:2] for fold in expected]
    assert by_fold(spread["restored"]) == [fold[3:] for fold in expected]
    assert spread["restored"][0]["num_devices"] == 2


@pytest.mark.slow
def test_a_fold_that_ended_counts_with_its_last_metrics(spread):
    config = PLAIN | {"stop_below": 0.56}
    ends = [alone(OneFold(i), config, 100) for i in range(3)]
    last = len(spread["stopping"])

    assert last == max(map(len, ends)) > min(map(len, ends))
    assert by_fold(spread["stopping"]) == [fold + [fold[-1]] * (last - len(fold)) for fold in ends]
    assert spread["stopping"][-1]["stop_reason"] == "completed"


@pytest.mark.slow
def test_a_diverged_fold_ends_the_trial(spread):
    assert spread["diverged"]["stop_reason"] == "diverged"


@pytest.mark.slow
def test_a_trial_whose_fold_died_goes_on_from_its_checkpoint(killed, expected):
    assert (killed.status, killed.num_failures) == ("TERMINATED", 1)
    assert "WorkerLostError" in Path(killed.error_file).read_text()
    assert by_fold([killed.last_result]) == [fold[-1:] for fold in expected]


def test_a_member_with_the_trials_own_seed_gives_the_trials_own_numbers():
    trial = trainable(Patients(), Ensemble(2), seed=1)(config=dict(PLAIN))
    result = trial.train()
    trial.stop()
    members = [metrics_of(result, f"member_{i}/") for i in range(2)]

    assert [members[0]] == alone(Patients(), PLAIN, 1)
    assert members[1] != members[0]


@pytest.mark.parametrize("bad", [(math.nan, 1.0), (math.inf, -math.inf)], ids=str)
def test_one_diverged_subtask_makes_the_mean_no_number(bad):
    told = summary([{"loss": loss} for loss in bad], "fold")

    assert not math.isfinite(told["loss"])
    assert "loss_std" not in told


def test_the_best_has_the_lowest_validation_loss():
    assert best_subtask({0: {"loss": 1.0, "val_loss": math.nan}, 1: {"val_loss": 2.0}}) == 1
    assert best_subtask({0: {"loss": 2.0}, 1: {"loss": 1.0}}) == 1
