"""A sweep that is run in a notebook, by a kernel of its own."""

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def test_a_sweep_is_drawn_below_its_cell_and_once_it_has_ended(sweep_file, tmp_path):
    cell = f"""
import tune_tf
config = tune_tf.SweepConfig.from_yaml({str(sweep_file)!r}, ["budget.num_samples=2", "mlflow=null"])
result = tune_tf.run_sweep(config)
"""
    look = "tune_tf.SweepView.open(result.path)"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(s) for s in (cell, look)])
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=240, resources=resources).execute()

    drawn = [o for o in notebook.cells[0].outputs if o.output_type == "display_data"]
    looked = [o for o in notebook.cells[1].outputs if o.output_type == "execute_result"]
    (live,), (last,) = drawn, looked  # it is drawn again in its place
    for output in (live, last):
        assert "ended, 2/2 trials" in output.data["text/html"]
        assert "SweepConfig" not in output.data["text/plain"]  # its data may hold a secret
    (tmp_path / "drawn.html").write_text(last.data["text/html"])
