"""A Trainable driven by hand, without a Ray cluster."""

import math
import re
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest
from pyarrow.fs import LocalFileSystem
from ray.tune import PlacementGroupFactory

from tune_tf.errors import WorkloadError
from tune_tf.outcome import STOP_CAUSE, STOP_REASON
from tune_tf.parallelism import Mirrored
from tune_tf.resources import TrialResources
from tune_tf.trainables import MirroredTrainable
from tune_tf.trainables.memory import recycling
from tune_tf.trainables.memory.oom_retries import RetryResources
from tune_tf.trainables.trial_process import PickledWorkload
from tune_tf.trainables.trial_settings import TrialSettings, seed_of_trial
from tune_tf.tune_internals.trial_state import to_training_result
from tune_tf.workload import Data, Workload

THREE_CPUS = PlacementGroupFactory([{"CPU": 3}])


class Small(Workload):
    """A workload of a few rows that can be told to go wrong."""

    def load_data(self, config):
        rng = np.random.default_rng(0)
        x = rng.normal(size=(config.get("rows", 24), 4)).astype("float32")
        y = (x.sum(1) > 0).astype("int32")
        return Data(train=(x, y), validation=(x[:8], y[:8]))

    def build_model(self, config):
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(config.get("width", 2))])
        if config.get("compiled", True):
            model.compile(
                keras.optimizers.SGD(config.get("learning_rate", 0.1)),
                keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                metrics=["accuracy"],
            )
        return model

    def callbacks(self, config):
        patience = config.get("patience")
        if config.get("logs"):
            return [keras.callbacks.CSVLogger("log.csv"), ReportsEpochs()]
        stopping = keras.callbacks.EarlyStopping("loss", patience=patience or 1, min_delta=1e6)
        return [stopping] if patience else []

    def global_batch_size(self, config):
        return config.get("batch_size", 8)


class ReportsEpochs(keras.callbacks.Callback):
    """Reports the number of epochs that it is told."""

    def on_epoch_end(self, epoch, logs=None):
        logs["epochs"] = self.params["epochs"]


@pytest.fixture
def begin(monkeypatch):
    """Return a function that begins a trial by hand, on the devices that this process has."""
    from tune_tf.training import devices

    made = []
    monkeypatch.setattr(
        devices,
        "claim_devices",
        lambda resources, num: devices.Devices(tuple(f"CPU:{i}" for i in range(num))),
    )

    def begin(config=None, *, num_replicas=1, workload=None, name=None, reserved=None, **arguments):
        class Named(MirroredTrainable):
            trial_name = property(lambda self: name or "default")

            @property
            def trial_resources(self):
                return super().trial_resources if reserved is None else reserved

        # The keyword arguments that `tune.with_parameters` would hand to setup.
        clock = {"clock": arguments.pop("clock")} if "clock" in arguments else {}
        parallelism = arguments.pop("parallelism", Mirrored(num_replicas))
        settings = TrialSettings(parallelism, TrialResources(), **{"seed": 1, **arguments})
        given = {"workload": PickledWorkload.of(workload or Small()), "settings": settings, **clock}
        Named.setup = lambda self, config: MirroredTrainable.setup(self, config, **given)
        made.append(Named(config or {}))
        return made[-1]

    yield begin
    for trainable in made:
        trainable.stop()


def metrics_of(result):
    return {name: result[name] for name in ("loss", "accuracy", "val_loss", "val_accuracy")}


class Reading(Small):
    """Reads a file whose path is a parameter."""

    def load_data(self, config):
        Path(config["path"]).read_text()
        return super().load_data(config)


def test_a_path_relative_to_the_script_is_refused_with_the_path_to_write(
    begin, tmp_path, monkeypatch
):
    (tmp_path / "rows.csv").write_text("rows")
    (tmp_path / "trial").mkdir()
    monkeypatch.chdir(tmp_path / "trial")  # as Tune does
    monkeypatch.setenv("TUNE_ORIG_WORKING_DIR", str(tmp_path))
    with pytest.raises(WorkloadError, match=re.escape(f"path, '{tmp_path}/rows.csv'")):
        begin({"path": "rows.csv"}, workload=Reading())
    for path in ("nowhere.csv", "/nowhere.csv"):
        with pytest.raises(FileNotFoundError, match=r"nowhere\.csv"):
            begin({"path": path}, workload=Reading())
    begin({"path": str(tmp_path / "rows.csv")}, workload=Reading())


def test_a_diverged_trial_says_so_and_ends(begin):
    result = begin({"learning_rate": math.inf}).train()
    result = result if result["done"] else begin({"learning_rate": math.inf, "rows": 32}).train()

    assert result["done"]
    assert result[STOP_REASON] == "diverged"
    assert result[STOP_CAUSE] == "loss is nan at iteration 1"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        pytest.param({"compiled": False}, "a model that is not compiled", id="not compiled"),
        pytest.param({"rows": 0}, r"Data\.train is empty", id="no rows"),
        pytest.param({"batch_size": 0}, "the global batch size 0 is smaller", id="no batch"),
    ],
)
def test_a_workload_that_breaks_its_contract_is_told(config, message, begin):
    with pytest.raises(WorkloadError, match=message):
        begin(config)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        pytest.param("T_ab12c_00003", "T_ffff0_00003", True, id="the same number"),
        pytest.param("T_ab12c_00003", "T_ab12c_00004", False, id="another number"),
        pytest.param("a", "b", True, id="no number"),
    ],
)
def test_the_seed_follows_from_the_number_of_the_trial(first, second, same):
    assert (seed_of_trial(1, first, "default") == seed_of_trial(1, second, "default")) is same


def test_a_checkpoint_is_asked_for_when_its_time_has_come(begin, tmp_path):
    now, asked = [0.0], []
    trainable = begin(checkpoint_interval_s=60, clock=lambda: now[0])
    for now[0] in (30, 61, 62):
        asked.append(trainable.step().get("should_checkpoint", False))
    trainable.save_checkpoint(str(tmp_path))
    for now[0] in (121, 122):
        asked.append(trainable.step().get("should_checkpoint", False))

    assert asked == [False, True, True, False, True]


def test_a_process_with_too_many_programs_asks_to_be_recycled(begin, monkeypatch):
    monkeypatch.setattr(recycling, "MAX_PROGRAMS", 2)
    trainable = begin()
    results = [trainable.train()]
    assert trainable.reset({"width": 3})
    results.append(trainable.train())

    assert [result.get(recycling.RECYCLE, False) for result in results] == [False, True]


def test_a_trial_that_was_given_more_goes_on_with_more_replicas(begin, tmp_path):
    trainable = begin()
    trainable.train()
    trainable.save_checkpoint(str(tmp_path))
    expected = trainable.train()
    larger = begin(elastic=True, reserved=THREE_CPUS)
    larger.load_checkpoint(str(tmp_path))
    result = larger.train()

    assert result["devices"] == "CPU:0, CPU:1, CPU:2"
    assert metrics_of(result) == pytest.approx(metrics_of(expected), rel=1e-5)


@pytest.fixture
def three_epochs(begin, tmp_path):
    """Train three epochs with a checkpoint of each, as Tune has it; return results and folder."""
    trainable = begin()
    results = []
    for number in range(3):
        results.append(metrics_of(trainable.train()))
        trainable.save_checkpoint(str(tmp_path / f"checkpoint_{number:06d}"))
    return results, tmp_path


def gone(folder):
    shutil.rmtree(folder)


def cut(folder):
    file = folder / "trial.npz"
    file.write_bytes(file.read_bytes()[:-300])


def changed(folder):
    content = bytearray((folder / "trial.npz").read_bytes())
    content[len(content) // 2] ^= 1
    (folder / "trial.npz").write_bytes(content)


def empty(folder):
    (folder / "trial.npz").unlink()


@pytest.mark.parametrize("damage", [gone, cut, changed, empty])
@pytest.mark.parametrize("num_damaged", [1, 3])
def test_a_trial_goes_on_from_an_older_checkpoint_if_the_newest_is_damaged(
    damage, num_damaged, three_epochs, begin, caplog
):
    results, folder = three_epochs
    for number in range(3 - num_damaged, 3):
        damage(folder / f"checkpoint_{number:06d}")
    (folder / "checkpoint_0").touch()
    restored = begin()
    newest = to_training_result(
        str(folder / "checkpoint_000002"), LocalFileSystem(), {"training_iteration": 3}
    )
    restored.restore(newest)

    told = "goes on from checkpoint_000001, epoch 2" if num_damaged == 1 else "starts over"
    assert told in caplog.text
    first = 3 - num_damaged
    for number in range(first, 3):
        result = restored.train()
        assert result["training_iteration"] == number + 1
        assert metrics_of(result) == results[number]


def test_an_oom_retry_in_micro_batches_gives_the_same_numbers(begin, tmp_path):
    trainable = begin()
    whole = trainable.train()
    trainable.save_checkpoint(str(tmp_path))
    expected = trainable.train()
    saving = begin(reserved=RetryResources([{"CPU": 1}], micro_batches=4))
    saving.load_checkpoint(str(tmp_path))
    result = saving.train()

    assert (whole.get("micro_batches"), result["micro_batches"]) == (None, 4)
    assert metrics_of(result) == pytest.approx(metrics_of(expected), rel=1e-5)


@pytest.mark.parametrize(
    ("settings", "num_replicas"),
    [
        pytest.param({"elastic": False}, 1, id="not elastic"),
        pytest.param({"loop": "fit"}, 1, id="fit"),
        pytest.param({"config": {"batch_size": 2}}, 2, id="two rows"),
    ],
)
def test_more_devices_make_no_more_replicas_than_is_wanted(settings, num_replicas, begin):
    trainable = begin(**({"elastic": True, "reserved": THREE_CPUS} | settings))

    assert trainable._replicas.num == num_replicas


def test_callbacks_are_told_the_epochs_and_write_into_the_folder_of_their_trial(begin, tmp_path):
    trainable = begin({"logs": True}, name="trial_00003", log_folder=tmp_path, epochs=7)
    assert trainable.train()["epochs"] == 7
    trainable.cleanup()

    assert (tmp_path / "trial_00003" / "files" / "log.csv").read_text().count("\n") == 2
