"""The sweep of one trial that trains the final model, and what is refused before it does."""

import subprocess
import sys
from pathlib import Path

import pytest
from sweep_in_progress import SETTINGS

from tune_tf import SweepConfig
from tune_tf.errors import InvalidSettingsError
from tune_tf.parallelism import Hybrid, Mirrored, ModelParallel, MultiWorker
from tune_tf.sweep.model.retrain import final_config, final_parallelism
from tune_tf.sweep_folder import SweepFolder


def config_of(parallelism):
    return SweepConfig.from_dict(
        {
            "name": "a",
            "workload": "a:b",
            "objective": {"metric": "m", "mode": "min"},
            "space": {"width": 8},
            "budget": {"num_samples": 1},
            "parallelism": parallelism,
        }
    )


@pytest.mark.parametrize(
    ("kind", "replicas", "expected"),
    [
        ({"kind": "mirrored", "micro_batches": 2}, None, Mirrored(micro_batches=2)),
        ({"kind": "folds", "num_folds": 5}, None, Mirrored()),
        ({"kind": "mirrored", "micro_batches": 2}, 3, Mirrored(3, micro_batches=2)),
        ({"kind": "hybrid", "num_stages": 3}, 4, Hybrid(4, 3)),
        ({"kind": "model_parallel", "num_stages": 2}, 2, Hybrid(2, 2)),
        ({"kind": "model_parallel", "num_stages": 2}, 1, ModelParallel(2)),
        ({"kind": "ensemble", "num_members": 3}, 2, Mirrored(2)),
        ({"kind": "multi_worker", "num_workers": 2}, 4, MultiWorker(4)),
    ],
)
def test_a_final_model_is_one_model_on_as_many_replicas_as_asked(kind, replicas, expected):
    assert final_parallelism(config_of(kind), replicas) == expected


def test_a_kind_without_copies_refuses_a_number_of_them():
    config = config_of({"kind": "asynchronous", "num_workers": 2})
    with pytest.raises(InvalidSettingsError, match="'asynchronous', which cannot be scaled to 3"):
        final_parallelism(config, 3)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"on": "train+validaton"}, r"on must be one of .* did you mean 'train\+validation'"),
        ({"num_replicas": 0}, "num_replicas and num_epochs must be at least 1"),
        ({"num_epochs": -1}, "num_replicas and num_epochs must be at least 1"),
    ],
)
def test_wrong_settings_of_a_final_model_are_told_first(given, expected):
    with pytest.raises(InvalidSettingsError, match=expected):
        final_config("no-such-sweep", **given)


@pytest.mark.parametrize(("asked", "epochs"), [(None, 2), (5, 5)])
def test_a_final_model_trains_for_as_many_epochs_as_the_trial_keeps(sweeps, asked, epochs):
    sweep = sweeps(
        workload="tune_tf.workloads.digits:DigitsMLP",
        keep="best",
        mlflow=None,
        epochs=3,
        scheduler={"name": "fifo"},
    )
    sweep.run(0, 0.3, 0.8, 0.7, **{"kept/val_accuracy": 0.8, "kept/training_iteration": 2})
    sweep.finish()

    config = final_config(sweep.path, num_epochs=asked)

    assert SweepConfig.from_dict(config.to_dict()).to_dict() == config.to_dict()
    assert (config.epochs, config.name, config.mlflow) == (epochs, "small-retrain", None)
    assert config.storage_path == str(sweep.path.parent)


def test_a_final_model_is_that_of_the_sweep_wherever_it_is_trained(tmp_path, sweeps, monkeypatch):
    (tmp_path / "final_helpers.py").write_text("def twice(x):\n    return 2 * x\n")
    (tmp_path / "final_models.py").write_text(
        "from final_helpers import twice\n"
        "from tune_tf import Workload\n"
        "class Mine(Workload):\n"
        "    def load_data(self, config):\n        return None\n"
        "    def build_model(self, config):\n        return twice(config['block']['width'])\n"
    )
    monkeypatch.setattr("sys.path", [*sys.path])
    space = {**SETTINGS["space"], "block": {"choice": [{"width": 8}, {"low": 1, "high": 2}]}}
    sweep = sweeps(name="n" * 200, workload=f"{tmp_path}/final_models.py:Mine", space=space)
    sweep.run(0, 0.3)
    sweep.finish()
    began_in = Path.cwd()
    monkeypatch.chdir(tmp_path)

    config = final_config(sweep.path)

    assert config.mlflow.tracking_uri == f"sqlite:///{began_in / 'mlflow.db'}"
    assert config.space.parameters["block"].value == {"width": 8}
    folder = SweepFolder.open(SweepFolder.create(config, tmp_path).path)
    code = (
        "from pathlib import Path; from tune_tf.config.stored_workload import read_workload; "
        f"print(read_workload(Path({str(folder.path)!r})).build_model({{'block': {{'width': 8}}}}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd="/")
    assert done.stdout == "16\n", done.stderr
