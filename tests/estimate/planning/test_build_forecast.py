"""A forecast added up from what is scripted; only the scheduler is a real one."""

import pytest
from measured_trials import PROFILES, SPACE, profiles_of, timings_of

from tune_tf.config import SweepConfig
from tune_tf.estimate.planning.build_forecast import build_forecast
from tune_tf.estimate.planning.measure_trials import TrialMeasurements
from tune_tf.estimate.planning.measured_sweep import Machine, MeasuredOverhead, MeasuredSweep
from tune_tf.estimate.planning.schedule_model import fit_costs
from tune_tf.estimate.planning.simulated_sweeps import simulate_sweeps
from tune_tf.estimate.sample_process import TrialUsage
from tune_tf.resources import TrialResources
from tune_tf.sweep.plan import SweepPlan
from tune_tf.workloads.digits import DigitsMLP

GB = 10**9


def forecast(tmp_path, *, budget=None, machine=None, broken=0, memory=None, keep="last", **more):
    config = SweepConfig.from_dict(
        {
            "name": "small",
            "workload": "models:Mine",
            "objective": {"metric": "val_accuracy", "mode": "max"},
            "space": SPACE.to_dict(),
            "scheduler": {"name": "asha", "max_t": 9, "grace_period": 1, "reduction_factor": 3},
            "budget": {"num_samples": 20} | (budget or {}),
            "resources": {"cpus": 3},
            "searcher": {"sampler": "random"},  # it takes no time to think
            "storage_path": str(tmp_path),
            "keep": keep,
            **more,
        }
    )
    profiles = profiles_of(broken=("width=64: ValueError: no",) * broken)
    measured = TrialMeasurements(
        num_slots=2,
        timings=timings_of(PROFILES),
        first_usages={0: TrialUsage(GB, None), 1: TrialUsage(GB // 2, None)},
        final_usage=TrialUsage(memory or GB + 10**7, None, num_rows=1000, total_rows=1000),
        process_s=8.0,
    )
    costs = fit_costs(measured, PROFILES, profiles, process_s=0.0)
    here = {"num_nodes": 1, "cpus": 6, "gpus": 0, "num_cores": 6, "busy_cores": 0.1}
    here |= {"memory_bytes": 16 * GB, "available_bytes": 12 * GB} | (machine or {})
    plan = SweepPlan(config, DigitsMLP(), TrialResources(cpus=3), 2, ())
    sweep = MeasuredSweep(
        plan=plan,
        machine=Machine(**here),
        profiles=profiles,
        trained=PROFILES,
        measured=measured,
        costs=costs,
        simulated=simulate_sweeps(config, costs.epoch_s, num_slots=2, num_seeds=3),
        reuses=True,
        num_to_keep=2,
        first_rung=1,
        cluster_s=4.0,
        store=MeasuredOverhead(3.0, 600_000),
        report=MeasuredOverhead(4.0, 3_000_000),
    )
    return build_forecast(sweep, "0123", "2026-09-21")


def test_the_phases_add_up_to_the_wall_time(tmp_path):
    made = forecast(tmp_path)
    for end in ("low", "likely", "high"):
        total = sum(getattr(each, end) for each in made.phases.values())
        assert getattr(made.wall_s, end) == pytest.approx(total)


def test_all_epochs_of_all_trials_are_forecast(tmp_path):
    made = forecast(tmp_path)
    assert made.trials.likely == 20
    assert made.epochs.low == made.epochs.high == 180


def test_reserved_cores_are_counted_whether_they_are_used_or_not(tmp_path):
    made = forecast(tmp_path)
    hours = made.cpu_hours.likely / 3
    assert made.gpu_hours.high == 0
    assert 0 < hours * 3600 <= 2 * made.wall_s.likely


def test_a_process_grows_with_the_programs_that_it_will_keep(tmp_path):
    made = forecast(tmp_path)
    # Two structures met, 10 MB apart; four there are: two widths, with and without dropout.
    assert GB + 10**7 < made.memory_bytes.likely <= GB + 3 * 10**7
    assert made.memory_bytes.low == GB // 2


def test_checkpoints_that_may_hold_the_best_epoch_too_are_twice_as_large(tmp_path):
    last, best = (forecast(tmp_path, keep=keep).disk_bytes for keep in ("last", "best"))
    assert best.low == last.low
    assert last.likely < best.likely < 2 * last.likely
    assert last.high < best.high < 2 * last.high


def test_a_time_budget_bounds_the_sweep(tmp_path):
    free, bound = forecast(tmp_path), forecast(tmp_path, budget={"time_budget_s": 12.0})
    assert bound.epochs.likely < free.epochs.likely
    assert bound.trials.likely < free.trials.likely
    assert bound.wall_s.high < free.wall_s.high


WARNINGS = {
    "memory": ({"machine": {"available_bytes": GB}}, "set max_concurrent_trials to 1"),
    "time": ({"budget": {"time_budget_s": 5.0}}, "to its first rung"),
    "busy": ({"machine": {"busy_cores": 5.0}}, "other programs used 5.0 of 6 cores"),
    "broken": ({"broken": 3}, "3 of 5 random models could not be built"),
}


@pytest.mark.parametrize(("how", "told"), WARNINGS.values(), ids=WARNINGS.keys())
def test_forecast_warns_of_expected_problems(tmp_path, how, told):
    assert forecast(tmp_path).warnings == ()
    assert any(told in each for each in forecast(tmp_path, **how).warnings)


def test_a_sweep_larger_than_the_simulated_one_goes_on_as_it_did(tmp_path):
    small = forecast(tmp_path, budget={"num_samples": 100})
    large = forecast(tmp_path, budget={"num_samples": 250})
    assert large.trials.likely == 250
    assert large.epochs.likely == pytest.approx(2.5 * small.epochs.likely, rel=0.15)
    assert any("250 for 100" in each for each in large.assumptions)
