"""What Tune keeps of trials that have ended."""

import pytest


@pytest.fixture
def trial(tmp_path):
    from ray.train._internal.storage import StorageContext
    from ray.tune.experiment import Trial

    storage = StorageContext(str(tmp_path), "sweep")
    storage.trial_dir_name = "trial_00000"
    return Trial("trainable", storage=storage, stub=True)


def report(trial, iteration):
    metrics = {f"metric_{number}": 1.0 / iteration for number in range(20)}
    trial.update_last_result(
        {"training_iteration": iteration, "trial_id": trial.trial_id, **metrics}
    )


@pytest.mark.parametrize("hook", ["on_trial_complete", "on_trial_error"])
def test_a_trial_that_has_ended_takes_half_as_much_in_tunes_state(trial, hook):
    from tune_tf.tune_internals.trial_state import RunningAverageTrimmer

    for iteration in range(1, 12):
        report(trial, iteration)
    assert len(trial.run_metadata.metric_n_steps["metric_3"]["10"]) == 10
    before = len("".join(trial.get_json_state()))

    getattr(RunningAverageTrimmer(), hook)(0, [trial], trial)
    assert len("".join(trial.get_json_state())) < before / 2
    assert trial.last_result["metric_3"] == 1 / 11


def test_a_trial_that_reports_after_its_end_begins_its_averages_anew(trial):
    from tune_tf.tune_internals.trial_state import RunningAverageTrimmer

    report(trial, 1)
    RunningAverageTrimmer().on_trial_complete(0, [trial], trial)
    report(trial, 2)
    report(trial, 3)
    assert trial.metric_analysis["metric_0"]["last-5-avg"] == pytest.approx((1 / 2 + 1 / 3) / 2)
