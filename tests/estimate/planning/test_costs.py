import pytest
from measured_trials import PROFILES, SPACE, profiles_of, timings_of

from tune_tf.estimate.planning.measure_trials import TrialMeasurements
from tune_tf.estimate.planning.schedule_model import fit_costs
from tune_tf.estimate.sample_process import TrialUsage


def costs_of(epochs_s=None, *, scale=1, **how):
    measured = TrialMeasurements(
        num_slots=2,
        timings=timings_of(PROFILES, epochs_s, **how),
        first_usages={},
        final_usage=TrialUsage(10**9, None, num_rows=1000, total_rows=1000 * scale),
        process_s=8.0,
    )
    return fit_costs(measured, PROFILES, profiles_of(), process_s=0.0)


def test_a_config_that_was_measured_takes_what_it_took():
    costs = costs_of()
    assert costs.epoch_s({"width": 64}) == pytest.approx(0.4, rel=0.05)
    assert costs.epoch_s({"width": 16}) == pytest.approx(0.1, rel=0.05)


def test_measurements_that_contradict_each_other_are_met_in_the_middle():
    costs = costs_of({64: 0.2, 16: 1.0})  # the larger one was faster: the machine was busy
    for width in (16, 64):
        assert 0.2 < costs.epoch_s({"width": width}) < 1.0


def test_time_grows_with_work_where_batches_are_alike():
    assert costs_of().epoch_s({"width": 64}) > 3 * costs_of().epoch_s({"width": 16})


def test_equal_epoch_times_of_models_are_attributed_to_batches():
    costs = costs_of({64: 0.2, 16: 0.2})
    assert costs.epoch_s({"width": 64}) == pytest.approx(costs.epoch_s({"width": 16}), rel=0.02)


def test_epoch_time_is_scaled_from_measured_rows_to_all_rows():
    assert costs_of(scale=10).epoch_s({"width": 64}) == pytest.approx(4, rel=0.05)


def test_start_time_of_a_trial_excludes_the_start_of_its_process():
    costs = costs_of(first_start_s=9.0, start_s=0.2)
    assert costs.start_s == pytest.approx(0.25)  # with its checkpoint
    assert costs.trace_s == pytest.approx(1.5)


def test_structures_are_told_apart_by_the_parameters_that_make_them():
    costs = costs_of()
    config = SPACE.active({"width": 16, "dropout": 0.3, "learning_rate": 0.1})
    other = {**config, "learning_rate": 0.2}
    assert costs.structure(config) == costs.structure(other)
    assert costs.structure(config) != costs.structure({**config, "width": 64})
    assert costs.structure(config) != costs.structure({**config, "dropout": 0.0})
    assert costs.structure(config) == costs.structure({**config, "dropout": 0.5})
