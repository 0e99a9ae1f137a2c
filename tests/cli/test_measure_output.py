"""What ``plan`` and ``scale`` print of what was measured."""

import json

import pytest

from tune_tf.cli import app
from tune_tf.measure.scaling import Scaling, ScalingRow
from tune_tf.measure.sweep_costs import ModelCosts, SweepCosts
from tune_tf.measure.trial_costs import TrialCosts

SWEEP = """
name: mine
workload: tune_tf.workloads.digits:DigitsMLP
objective: {metric: val_accuracy, mode: max}
space: {width: 32}
budget: {num_samples: 2}
"""
ROWS = (
    ScalingRow("1 replica", 1, 32, 1000.0, 1.0, 1.0, 8e8),
    ScalingRow("2 replicas", 2, 32, 1500.0, 1.5, 0.75, None),
)
SCALING = Scaling({"width": 32}, "core", ROWS, {"batch x 4": "too large"}, "Give a trial 2.")
COSTS = SweepCosts(
    (
        ModelCosts("smallest", {"width": 8}, 100, 1, TrialCosts(3.0, 0.5, 9.0, 5e8, None, 900)),
        ModelCosts("largest", {"width": 16}, 2000, 2, TrialCosts(4.0, 2.0, 9.0, 6e8, None, 9000)),
    ),
    num_at_once=2,
    epochs=54,
    time_s=700.0,
    memory_bytes=1.2e9,
    disk_bytes=36_000,
    end_disk_bytes=18_000,
)


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("tune_tf.measure.scaling.scale_workload", lambda *_, **__: SCALING)
    monkeypatch.setattr("tune_tf.measure.sweep_costs.measure_sweep", lambda *_, **__: COSTS)
    (tmp_path / "sweep.yaml").write_text(SWEEP)

    def run(verb, *options):
        with pytest.raises(SystemExit) as ended:
            app([verb, str(tmp_path / "sweep.yaml"), *options])
        assert not ended.value.code
        return capsys.readouterr().out

    return run


def test_plan_prints_models_and_bounds(run):
    out = run("plan")
    assert all(len(line) <= 80 for line in out.splitlines())
    for part in ("2,000", "600 MB", "width=16", "11 min 40 s, 2 trials", "1.2 GB; free now: "):
        assert part in out
    assert json.loads(run("plan", "--json"))["models"][1]["costs"]["epoch_s"] == 2.0


def test_scale_prints_a_table_failures_and_advice_and_draws_a_plot(run, tmp_path):
    out = run("scale", f"--plot={tmp_path / 'scale.html'}")
    assert all(len(line) <= 80 for line in out.splitlines())
    for part in ("1,500", "1.50", "75%", "not measured: batch x 4: too large", "Give a trial 2."):
        assert part in out
    page = (tmp_path / "scale.html").read_text()
    assert "How mine scales" in page
    assert "2 replicas" in page


def test_scale_prints_all_numbers_as_json(run):
    assert json.loads(run("scale", "--json"))["rows"][1]["efficiency"] == 0.75
