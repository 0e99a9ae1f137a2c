"""MLflow's autologging, which the user's code may have switched on."""

import subprocess
import sys

import pytest

from tune_tf.tracking.mlflow_internals import stop_autologging

pytestmark = pytest.mark.mlflow

# In a process of its own: what was switched off for one library stays off for all of it.
SCRIPT = """
import sys
import mlflow
from sklearn.linear_model import LinearRegression
from tune_tf.tracking.mlflow_internals import stop_autologging

client = mlflow.MlflowClient()

def fit():
    LinearRegression().fit([[0.0], [1.0]], [0.0, 1.0])
    found = [each.experiment_id for each in client.search_experiments()]
    return len(client.search_runs(found))

{switch_on}(log_models=False, silent=True)
before = fit()
stop_autologging()
print(before, fit())
"""


@pytest.mark.slow
@pytest.mark.parametrize("switch_on", ["mlflow.autolog", "mlflow.sklearn.autolog"])
def test_what_was_switched_on_makes_no_more_runs(switch_on, store_uri, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store_uri)
    script = SCRIPT.replace("{switch_on}", switch_on)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=240
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-2:] == ["1", "1"]


def test_mlflow_is_not_loaded_for_it(monkeypatch):
    monkeypatch.delitem(sys.modules, "mlflow", raising=False)
    stop_autologging()

    assert "mlflow" not in sys.modules
