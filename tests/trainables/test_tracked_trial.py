"""A trial that knows its MLflow run, driven by hand."""

import shutil
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from guards import slow

import tune_tf
from tune_tf.parallelism import Mirrored
from tune_tf.resources import TrialResources
from tune_tf.tracking.trial_run import NoTrialRunError, TrialTracking, leave_trial
from tune_tf.trainables import MirroredTrainable
from tune_tf.trainables.trial_process import PickledWorkload
from tune_tf.trainables.trial_settings import TrialSettings
from tune_tf.workload import Data, Workload

pytestmark = pytest.mark.tf


def log_text(text, name):
    run = tune_tf.mlflow_run(timeout_s=0)
    run.client.log_text(run.run_id, text, name)


class Writing(Workload):
    """A workload whose code writes to its run wherever it runs."""

    def load_data(self, config):
        log_text(str(config["width"]), "data.txt")
        rng = np.random.default_rng(0)
        x = rng.normal(size=(24, 4)).astype("float32")
        return Data(train=(x, x[:, 0]), validation=(x[:8], x[:8, 0]))

    def build_model(self, config):
        log_text("built", "model.txt")
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.1), keras.losses.MeanSquaredError())
        return model

    def callbacks(self, config):
        return [WriteEpochs()]


class WriteEpochs(keras.callbacks.Callback):
    """Writes the losses of each epoch through MLflow's fluent calls."""

    def on_epoch_end(self, epoch, logs=None):
        import mlflow

        with tune_tf.mlflow_run(timeout_s=0):
            mlflow.log_dict({"loss": float(logs["loss"])}, f"epoch-{epoch}.json")


class Autologging(Writing):
    """A workload whose code has switched autologging on."""

    def build_model(self, config):
        import mlflow

        mlflow.keras.autolog(log_models=False, silent=True)
        return super().build_model(config)


@pytest.fixture
def store(empty_store, tmp_path):
    """The client of a fresh store, the sweep in it and a function that makes a trial's run."""
    from tune_tf.tracking.store import connect

    shutil.copy(empty_store, tmp_path / "mlflow.db")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    client = connect(uri)
    location = (tmp_path / "artifacts").as_uri()
    experiment = client.create_experiment("digits", artifact_location=location)

    def make_run(trial_id):
        tags = {"tune_tf.run": f"s1/{trial_id}", "tune_tf.trial_id": trial_id}
        return client.create_run(experiment, tags=tags).info.run_id

    return SimpleNamespace(
        client=client,
        tracking=TrialTracking(uri, "digits", "s1"),
        make_run=make_run,
        files=lambda run_id: {file.path for file in client.list_artifacts(run_id)},
        runs=lambda: client.search_runs(
            [each.experiment_id for each in client.search_experiments()]
        ),
    )


@pytest.fixture
def begin(monkeypatch):
    """Return a function that begins a trial by hand, on the devices that this process has."""
    from tune_tf.training import devices

    begun = []
    monkeypatch.setattr(
        devices, "claim_devices", lambda resources, num: devices.Devices(("CPU:0",))
    )

    def begin(trial_id="t1", workload=None, **settings):
        class Identified(MirroredTrainable):
            trial_id = "t1"

        # The keyword arguments that `tune.with_parameters` would hand to setup.
        shared = TrialSettings(Mirrored(), TrialResources(), seed=0, **settings)
        given = {"workload": PickledWorkload.of(workload or Writing()), "settings": shared}
        Identified.setup = lambda self, config: MirroredTrainable.setup(self, config, **given)
        Identified.trial_id = trial_id
        begun.append(Identified({"width": 1}))
        return begun[-1]

    yield begin
    for trainable in begun:
        trainable.stop()
    leave_trial()


@pytest.mark.parametrize("loop", ["graph", slow("fit")])
def test_the_workloads_code_writes_to_the_trials_run_from_everywhere(loop, begin, store):
    run_id = store.make_run("t1")
    trainable = begin(tracking=store.tracking, loop=loop)
    trainable.train()
    trainable.train()

    assert store.files(run_id) == {"data.txt", "model.txt", "epoch-0.json", "epoch-1.json"}
    (run,) = store.runs()
    assert (run.info.run_id, run.info.status) == (run_id, "RUNNING")


def test_the_next_trial_of_a_process_writes_to_its_own_run(begin, store):
    first, second = store.make_run("t1"), store.make_run("t2")
    trainable = begin("t1", tracking=store.tracking)
    trainable.train()
    type(trainable).trial_id = "t2"
    trainable.reset({"width": 2})
    trainable.train()

    assert store.files(second) == {"data.txt", "model.txt", "epoch-0.json"}
    assert store.files(first) == {"data.txt", "model.txt", "epoch-0.json"}


def test_a_trial_that_is_not_tracked_tells_its_code_so(begin):
    with pytest.raises(NoTrialRunError, match="is not tracked"):
        begin()


def test_after_a_trial_there_is_no_run(begin, store):
    store.make_run("t1")
    begin(tracking=store.tracking).stop()
    with pytest.raises(NoTrialRunError, match="inside a trial"):
        tune_tf.mlflow_run()


@pytest.mark.slow
def test_autologging_makes_no_second_run_of_a_trial(begin, store):
    import mlflow

    store.make_run("t1")
    mlflow.set_tracking_uri(store.tracking.tracking_uri)
    try:
        begin(tracking=store.tracking, loop="fit", workload=Autologging()).train()
        assert len(store.runs()) == 1
    finally:
        mlflow.keras.autolog(disable=True, silent=True)
        mlflow.set_tracking_uri(None)


@pytest.mark.parametrize("wanted", [True, False])
def test_a_tracked_trial_reports_the_load_of_its_process_if_wanted(wanted, begin, store):
    store.make_run("t1")
    tracking = TrialTracking(store.tracking.tracking_uri, "digits", "s1", system_metrics=wanted)
    result = begin(tracking=tracking).train()

    assert ("system/process_memory_usage_megabytes" in result) is wanted
    assert ("system/cpu_utilization_percentage" in result) is wanted
