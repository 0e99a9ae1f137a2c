"""A sweep that is run in a notebook, by a kernel of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


CELLS = """
import keras, numpy as np, tune_tf
from beside import dense

class Mine(tune_tf.Workload):
    def load_data(self, config):
        x = np.arange(8.0)[:, None]
        return tune_tf.Data(train=(x, x), validation=(x, x))

    def build_model(self, config):
        model = keras.Sequential([keras.Input((1,)), dense(1)])
        model.compile(keras.optimizers.SGD(config["rate"]), "mse")
        return model

space = {"rate": tune_tf.Float(1e-4, 1e-3)}
result = tune_tf.search(Mine, space=space, trials=2, epochs=2, mlflow=None)
---
print("difference", result.best_value - result.best_model().evaluate(*Mine().load_data({}).train))
"""


def test_a_class_of_a_notebook_is_searched_and_retrained_elsewhere(tmp_path):
    (tmp_path / "beside.py").write_text(
        "import keras\n\ndef dense(n):\n    return keras.layers.Dense(n)\n"
    )
    cells = [nbformat.v4.new_code_cell(source) for source in CELLS.split("---")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=480, resources=resources).execute()

    text = "".join(output.get("text", "") for output in notebook.cells[1].outputs)
    assert abs(float(text.partition("difference")[2])) < 1e-5
    (tmp_path / "beside.py").unlink()
    (folder,) = (tmp_path / "sweeps").glob("Mine-*")
    script = Path(__file__).parents[2] / "scripts" / "sweep.py"
    retrain = [sys.executable, script, "retrain", folder, "--epochs", "2"]
    done = subprocess.run(retrain, cwd="/", capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
