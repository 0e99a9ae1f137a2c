"""Which parameters a sweep lets its scheduler change in running trials."""

import os

import psutil
import pytest

from tune_tf.config import SweepConfig
from tune_tf.errors import InvalidSettingsError
from tune_tf.workloads.digits import DigitsMLP

pytestmark = [pytest.mark.cluster, pytest.mark.tf, pytest.mark.slow]

SETTINGS = {
    "name": "small",
    "workload": "tune_tf.workloads.digits:DigitsMLP",
    "objective": {"metric": "val_loss", "mode": "min"},
    "space": {
        "learning_rate": {"loguniform": [1e-4, 1e-1]},
        "dropout": {"uniform": [0.1, 0.5]},
        "width": {"int": [8, 16]},
        "batch_size": {"choice": [32, 64]},
    },
    "budget": {"num_samples": 2},
}


def allowed(scheduler, space=None, workload=None):
    from tune_tf.sweep.plan import allowed_mutations

    config = SweepConfig.from_dict({**SETTINGS, **(space or {}), "scheduler": scheduler})
    return allowed_mutations(config, workload or DigitsMLP())


@pytest.mark.usefixtures("ray_cluster")
def test_mutable_parameters_are_found_in_a_process_that_ends(tmp_path):
    class Noting(DigitsMLP):
        def build_model(self, config):
            (tmp_path / "process").write_text(str(os.getpid()))
            return super().build_model(config)

    assert allowed({"name": "pbt"}, workload=Noting()) == ("learning_rate", "dropout", "batch_size")
    process = int((tmp_path / "process").read_text())
    # TensorFlow's devices and threads are fixed there, with other numbers than a trial wants.
    psutil.wait_procs([psutil.Process(process)] if psutil.pid_exists(process) else [], timeout=30)
    assert not psutil.pid_exists(process)


@pytest.mark.usefixtures("ray_cluster")
def test_a_named_parameter_that_shapes_the_model_is_refused():
    with pytest.raises(InvalidSettingsError, match="width cannot change while a trial runs"):
        allowed({"name": "pbt", "mutations": ["learning_rate", "width"]})
