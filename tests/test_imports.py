"""What is loaded when: frameworks cost seconds, and nobody pays before it is needed."""

import subprocess
import sys

import pytest

FRAMEWORKS = ("tensorflow", "keras", "ray", "mlflow", "optuna", "pandas", "sklearn", "torch")

CASES = {
    "import tune_tf": "import tune_tf",
    "the vocabulary": "from tune_tf import SearchSpace, Float, Objective, SweepConfig, Workload",
    "the command line's help": "import tune_tf.cli",
    "tracking": "import tune_tf.tracking",
    "a ready workload": "import tune_tf.workloads.digits",
    "workloads on data of one's own": "from tune_tf.workloads import arrays, image_folder, tabular",
    "results": "import tune_tf.results",
    "looking at sweeps": "import tune_tf.inspection, tune_tf.record",
}


@pytest.mark.parametrize("code", CASES.values(), ids=CASES.keys())
def test_no_framework_is_loaded_by(code):
    assert loaded_by(code) == set()


@pytest.mark.parametrize("code", ["import tune_tf.sweep", "import tune_tf.trainables"])
def test_the_driver_loads_no_tensorflow_by(code):
    assert loaded_by(code) & {"tensorflow", "keras", "mlflow", "sklearn", "torch"} == set()


@pytest.mark.mlflow
def test_every_public_name_is_there():
    code = "import tune_tf; [getattr(tune_tf, name) for name in tune_tf.__all__]"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=240)


def loaded_by(code: str) -> set[str]:
    tell = f"{code}\nimport sys\nprint(*(set(sys.modules) & {set(FRAMEWORKS)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", tell], capture_output=True, text=True, check=True, timeout=240
    )
    return set(done.stdout.split())
