"""PASHA driven by hand with Tune's calls."""

import numpy as np


def slots(curve, num_samples, **options):
    from slots import LOSS, Slots

    from tune_tf.config.scheduler_settings import PashaSettings
    from tune_tf.schedulers.promotion import PashaScheduler

    settings = PashaSettings(max_t=27, grace_period=1, reduction_factor=3)
    return Slots(PashaScheduler(LOSS, settings), curve, num_samples, **options)


def stable(number, iteration):
    """Curves that never cross."""
    return number + 1 / iteration


def test_where_the_ranking_is_stable_no_trial_passes_the_second_rung():
    swept = slots(stable, 30, num_slots=4)
    swept.run()
    assert max(iteration for _, iteration in swept.reports) == 3


def test_pasha_completes_trials_at_its_top_rung_and_prunes_others():
    swept = slots(stable, 30, num_slots=4)
    swept.run()
    ends = swept.ends()
    assert len(ends) == 30
    assert all(trial.status == "TERMINATED" for trial in swept.trials)
    assert {end for end in ends.values() if end[0] == "completed"} == {("completed", 3)}
    assert {end for end in ends.values() if end[0] != "completed"} == {("pruned", 1)}
    assert ends[0] == ("completed", 3)


def test_where_the_ranking_changes_trials_go_further_up_to_max_t():
    losses = np.random.default_rng(0).normal(size=(90, 28)).cumsum(axis=1)
    swept = slots(lambda number, iteration: float(losses[number, iteration]), 90, num_slots=4)
    swept.run()
    ends = swept.ends()
    last = max(iteration for _, iteration in swept.reports)
    assert last > 3
    assert {end for end in ends.values() if end[0] == "completed"} == {("completed", last)}
    assert {reason for reason, _ in ends.values()} == {"completed", "pruned"}


def test_trials_at_a_rung_that_is_no_longer_the_highest_are_pruned():
    first, second = {1: 0.1, 3: 0.4}, {1: 0.2, 3: 0.3}
    curves = [first, second] + [{1: 1.0}] * 4
    swept = slots(lambda number, iteration: curves[number].get(iteration, 0.9), 6, num_slots=6)
    swept.run()
    ends = swept.ends()
    assert swept.scheduler._rungs.limit == 9
    assert ends[0] == ("pruned", 3)
    assert ends[1] == ("pruned", 3)


def test_growth_survives_a_kill(tmp_path):
    losses = np.random.default_rng(0).normal(size=(60, 28)).cumsum(axis=1)

    def curve(number, iteration):
        return float(losses[number, iteration])

    killed = slots(curve, 60)
    for _ in range(70):
        killed.fill()
        killed.step(killed.running[0])
    assert killed.scheduler._rungs.limit > 3
    killed.scheduler.save(tmp_path / "scheduler.pkl")
    again = slots(curve, 60)
    again.scheduler.restore(tmp_path / "scheduler.pkl")
    again.add(60)
    assert again.scheduler._rungs.limit == killed.scheduler._rungs.limit
    assert again.scheduler._rungs.epsilon == killed.scheduler._rungs.epsilon


def test_rungs_up_to_max_t_are_told():
    assert slots(stable, 1).scheduler.rungs == (1, 3, 9, 27)
