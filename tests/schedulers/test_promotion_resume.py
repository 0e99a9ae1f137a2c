"""Promotion that is saved, killed and resumed."""

import numpy as np
import pytest
from promotion_slots import in_order, slots


def resumed(killed, path):
    """Return the sweep as Tune resumes it: new trials with the old last results, all pending."""
    from ray.tune.experiment import Trial

    again = slots(killed.curve, killed.num_samples, num_slots=killed.num_slots)
    again.scheduler.restore(path)
    for old in killed.trials:
        trial = Trial("trainable", stub=True, trial_id=old.trial_id)
        trial.run_metadata.last_result = dict(old.last_result)
        trial.set_status(old.status if old.is_finished() else "PENDING")
        again.scheduler.on_trial_add(again, trial)
        again.trials.append(trial)
    again.jobs, again.reports = list(killed.jobs), list(killed.reports)
    return again


@pytest.mark.parametrize("num_steps", range(0, 40, 3))
def test_a_sweep_that_was_killed_goes_on_as_if_it_was_not(num_steps, tmp_path):
    losses = np.random.default_rng(5).normal(size=(20, 10))

    def curve(number, iteration):
        return float(losses[number, iteration])

    whole = slots(curve, 20)
    whole.run()
    killed = slots(curve, 20)
    for _ in range(num_steps):
        killed.fill()
        killed.step(killed.running[0])
    killed.scheduler.save(tmp_path / "scheduler.pkl")
    again = resumed(killed, tmp_path / "scheduler.pkl")
    again.run()
    assert again.reports == whole.reports
    assert again.ends() == whole.ends()


def test_the_state_holds_no_trials(tmp_path):
    import pickle

    swept = slots(in_order, 4)
    swept.run()
    swept.scheduler.save(tmp_path / "scheduler.pkl")
    saved = pickle.loads((tmp_path / "scheduler.pkl").read_bytes())
    assert b"ray.tune.experiment" not in saved.state


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({"name": "asha", "type": "promotion"}, "PromotionAshaScheduler"),
        ({"name": "asha", "type": "stopping"}, "AshaScheduler"),
        ({"name": "asha"}, "AshaScheduler"),
        ({"name": "pasha"}, "PashaScheduler"),
    ],
)
def test_it_can_be_asked_for_by_name(settings, kind):
    from slots import LOSS

    from tune_tf.schedulers import scheduler

    made = scheduler(**settings, objective=LOSS, max_t=9)
    assert type(made).__name__ == kind
    assert made.settings.max_t == 9
