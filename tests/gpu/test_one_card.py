"""Sweeps and trials on a real GPU: `make test-gpu`, on a machine that has one."""

import os
import subprocess
import sys
from pathlib import Path

import card
import keras
import numpy as np
import pytest
import ray

import tune_tf
from tune_tf import Data, SweepConfig, run_sweep
from tune_tf.workloads.digits import DigitsCNN, DigitsMLP

pytestmark = [pytest.mark.gpu, pytest.mark.tf, pytest.mark.cluster, pytest.mark.timeout(300)]

CONFIG = {"learning_rate": 0.01, "batch_size": 64, "width": 64, "filters": 8}
SCRIPT = Path(__file__).parents[2] / "scripts" / "sweep.py"
LOSSES = ("loss", "val_loss")


@pytest.fixture(scope="module", autouse=True)
def _cluster():
    paths = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    ray.init(
        num_cpus=8,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        runtime_env={"env_vars": {"PYTHONPATH": paths}},
    )
    yield
    ray.shutdown()


@pytest.fixture
def sweep(tmp_path):
    """Return a function that runs a sweep of digits in a folder of its own."""

    def sweep(**settings):
        given = {
            "name": "card",
            "workload": DigitsMLP,
            "objective": {"metric": "val_loss", "mode": "min"},
            "space": {
                "learning_rate": {"loguniform": [1e-3, 1e-1]},
                "batch_size": {"constant": 64},
            },
            "epochs": 2,
            "budget": {"num_samples": 4},
            "mlflow": {"tracking_uri": f"sqlite:///{tmp_path}/mlflow.db"},
            "storage_path": str(tmp_path),
            "resources": {"cpus": 1, "gpus": 0},
        }
        return run_sweep(SweepConfig(**{**given, **settings}))

    return sweep


def losses(epochs):
    return np.array([[epoch[name] for name in LOSSES] for epoch in epochs])


@pytest.mark.parametrize("workload", [DigitsMLP, DigitsCNN])
def test_a_trial_on_a_card_has_the_numbers_of_the_cpu(workload):
    of_card, of_cpu = (losses(card.history(workload, CONFIG, 3, gpus)) for gpus in (1, 0))

    assert np.allclose(of_card, of_cpu, rtol=1e-3), abs(of_card / of_cpu - 1).max()


class Dropping(DigitsMLP):
    """With Dropout, compiled as ``jit`` says."""

    def build_model(self, config):
        inner = super().build_model(config)
        model = keras.Sequential([inner, keras.layers.Dropout(config["dropout"])])
        jit = {"jit_compile": config["jit"]} if "jit" in config else {}
        model.compile(keras.optimizers.SGD(0.01), inner.loss, **jit)
        return model


def test_an_epoch_is_compiled_by_xla_and_equal_to_one_that_is_not():
    plain, compiled, default = (
        losses(card.history(Dropping, CONFIG | {"dropout": 0.0} | more, 3, 1))
        for more in ({"jit": False}, {"jit": True}, {})
    )

    assert np.allclose(compiled, plain, rtol=1e-4)
    assert np.array_equal(default, compiled)


def test_a_compiled_epoch_draws_the_random_numbers_of_one_that_is_not():
    plain, compiled = (
        losses(card.history(Dropping, CONFIG | {"dropout": 0.5, "jit": jit}, 3, 1))
        for jit in (False, True)
    )

    assert np.allclose(compiled, plain, rtol=1e-3), abs(compiled / plain - 1).max()


def test_frozen_layers_computed_once_give_the_numbers_of_the_whole_model():
    whole, shared, on_cpu = (
        card.history(card.Head, CONFIG, 3, gpus, share_frozen=share)
        for gpus, share in ((1, False), (1, True), (0, True))
    )

    assert "system/frozen_layers" not in whole[0]
    assert shared[0]["system/frozen_layers"].startswith("shared on this node: ")
    assert np.allclose(losses(shared), losses(whole), rtol=1e-3)
    assert np.allclose(losses(shared), losses(on_cpu), rtol=1e-3)


class Flattened(DigitsCNN):
    """A convolution whose flattened output goes into a dense layer."""

    def build_model(self, config):
        images = keras.Input((8, 8, 1))
        features = keras.layers.Conv2D(16, 3, activation="relu")(images)
        scores = keras.layers.Dense(10, "softmax")(keras.layers.Flatten()(features))
        model = keras.Model(images, scores)
        model.compile("sgd", "sparse_categorical_crossentropy")
        return model


def test_what_xla_cannot_compile_trains_without_it():
    on_card, on_cpu = (losses(card.history(Flattened, CONFIG, 2, gpus)) for gpus in (1, 0))

    assert np.allclose(on_card, on_cpu, rtol=1e-3), abs(on_card / on_cpu - 1).max()


def test_trials_without_a_card_leave_it_alone(sweep):
    with card.Watch() as watch:
        result = sweep(
            scheduler={
                "name": "pbt",
                "perturbation_interval": 1,
                "mutations": ["learning_rate"],
            }
        )

    assert {trial.outcome.value for trial in result.trials} == {"completed"}
    assert watch.command_of == {}


def test_the_verbs_leave_the_card_alone(tmp_path):
    (tmp_path / "models.py").write_text(
        "import keras_tuner, numpy as np\n"
        "from tune_tf import Data, from_hypermodel\n"
        "def build(hp):\n"
        "    import keras\n"
        "    units = hp.Int('units', 4, 8)\n"
        "    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(units),"
        " keras.layers.Dense(1)])\n"
        "    model.compile('sgd', 'mse')\n"
        "    return model\n"
        "x = np.ones((64, 4), 'float32')\n"
        "workload = from_hypermodel(build, Data((x, x[:, :1]), (x, x[:, :1])))\n"
    )
    (tmp_path / "sweep.yaml").write_text(
        "name: verbs\nworkload: models.py:workload\n"
        "objective: {metric: val_loss, mode: min}\nepochs: 2\nbudget: {num_samples: 2}\n"
        "space: {units: {int: [4, 8]}}\nresources: {cpus: 1, gpus: 0}\n"
    )
    for verb in ("run sweep.yaml", "plan sweep.yaml", "retrain verbs", "show verbs 0"):
        command = [sys.executable, SCRIPT, *verb.split()]
        with card.Watch() as watch:
            done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert (done.returncode, watch.command_of) == (0, {}), (verb, done.stderr[-2000:])


def test_a_quarter_of_a_card_holds_four_trials(sweep):
    with card.Watch() as watch:
        result = sweep(resources={"cpus": 1, "gpus": 0.25}, epochs=200)

    assert {trial.outcome.value for trial in result.trials} == {"completed"}
    assert watch.most_at_once == 4
    assert watch.most_mib <= card.memory_mib()


def test_a_trial_that_needs_more_than_its_share_gets_a_larger_one(sweep):
    result = sweep(
        workload=card.Wide,
        space={"width": {"constant": 4096}, "rows": {"constant": 65536}},
        resources={"cpus": 1, "gpus": 0.05},
        budget={"num_samples": 1},
    )
    (trial,) = result.trials

    assert trial.outcome.value == "completed", trial


def test_a_trial_whose_weights_need_more_than_its_share_gets_a_larger_one(sweep):
    result = sweep(
        workload=card.Heavy,
        space={"mib": {"constant": int(0.06 * card.memory_mib())}},
        resources={"cpus": 1, "gpus": 0.05},
        budget={"num_samples": 1},
    )
    (trial,) = result.trials

    assert trial.outcome.value == "completed", trial


def test_a_trial_that_needs_more_than_the_card_trains_in_pieces(sweep):
    rows = int(card.memory_mib() * 2**20 / 4 / 4096 / 4)  # one layer's activations take a quarter
    result = sweep(
        workload=card.Wide,
        space={"width": {"constant": 4096}, "rows": {"constant": rows}},
        resources={"cpus": 1, "gpus": 1},
        budget={"num_samples": 1},
        oom_retries=3,
    )
    (trial,) = result.trials

    assert trial.outcome.value == "completed", trial


class Rows(DigitsMLP):
    """Training and validation rows that each take under half of a share of the card."""

    def load_data(self, config):
        x = np.zeros((config["rows"], 8, 8, 1), "float32")
        y = np.zeros(config["rows"], "int32")
        return Data((x, y), (x, y))

    def global_batch_size(self, config):
        return 2**16


def test_rows_leave_room_for_the_model(sweep):
    share = 0.05 * card.memory_mib() * 2**20
    rows = int(0.45 * share / 65 / 4)
    result = sweep(
        workload=Rows,
        space={"rows": {"constant": rows}, "learning_rate": {"constant": 0.01}},
        resources={"cpus": 1, "gpus": 0.05},
        budget={"num_samples": 1},
        epochs=1,
    )
    (trial,) = result.trials

    assert trial.outcome.value == "completed"


def test_five_folds_train_on_one_card():
    epochs = card.history(
        DigitsMLP, CONFIG, 2, 1, parallelism=tune_tf.Folds(num_folds=5, num_devices=1)
    )

    assert np.isfinite(losses(epochs)).all()


def test_a_flipping_augmentation_trains_on_a_card():
    class Flipped(DigitsCNN):
        def per_example(self, config, *, training):
            import tensorflow as tf

            def flip(row, seed):
                drawn = tf.random.stateless_uniform([], seed)
                return tf.cond(drawn < 0.5, lambda: row[0][:, ::-1], lambda: row[0]), row[1]

            return flip if training else None

    on_card, on_cpu = (losses(card.history(Flipped, CONFIG, 2, gpus)) for gpus in (1, 0))

    assert np.allclose(on_card, on_cpu, rtol=1e-3), abs(on_card / on_cpu - 1).max()


def test_a_sweep_reports_the_card(sweep, tmp_path):
    from tune_tf.tracking.store import connect

    sweep(resources={"cpus": 1, "gpus": 1}, budget={"num_samples": 1}, epochs=300)
    client = connect(f"sqlite:///{tmp_path}/mlflow.db")
    runs = client.search_runs([each.experiment_id for each in client.search_experiments()])
    names = {name for run in runs for name in run.data.metrics if name.startswith("system/")}

    assert any("gpu" in name for name in names), names


@pytest.mark.parametrize("workload", [DigitsMLP, DigitsCNN, Dropping, Flattened])
def test_a_reproducible_sweep_repeats_bit_for_bit(sweep, tmp_path, workload):
    found = []
    for share_taken in (0, 0.5, 0):
        folder = tmp_path / str(len(found))
        taken = card.Taken.options(num_gpus=share_taken).remote()
        ray.get(taken.is_there.remote())
        result = sweep(
            workload=workload,
            reproducible=True,
            space={
                "learning_rate": {"loguniform": [1e-4, 1e-1]},
                "batch_size": {"constant": 64},
                "width": {"choice": [32, 64]},
                "filters": {"choice": [8, 32]},
                "dropout": {"constant": 0.5},
            },
            epochs=9,
            scheduler={"name": "asha"},
            slots=4,
            resources={"cpus": 1, "gpus": 0.5},
            budget={"num_samples": 9},
            mlflow=None,
            storage_path=str(folder),
        )
        ray.kill(taken)
        found.append((str(result.fingerprint), card.weights(folder)))

    (fingerprint, weights), *others = found
    for again, other_weights in others:
        assert again == fingerprint
        both = weights.keys() & other_weights.keys()
        assert both
        assert [
            name for name in both if not np.array_equal(weights[name], other_weights[name])
        ] == []


def test_the_epoch_on_a_card_is_measured():
    script = Path(__file__).with_name("epochs_on_card.py")

    assert subprocess.run([sys.executable, script]).returncode == 0  # it prints
