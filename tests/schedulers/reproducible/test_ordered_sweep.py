"""Ordered sweeps decide alike for any number of workers, in any order, and after any kills."""

import pytest
from virtual_workers import ACCURACY, MAX_T, Workers, decisions, make_sweep

from tune_tf.schedulers import scheduler as make_scheduler
from tune_tf.schedulers.ordered_sweep import OrderedSweep
from tune_tf.searchers import OptunaSearcher
from tune_tf.space import Choice, SearchSpace

CASES = [
    ({"name": "fifo"}, "random"),
    ({"name": "asha"}, "tpe"),
    ({"name": "asha", "brackets": 2, "reduction_factor": 2}, "tpe"),
    ({"name": "HyperBandScheduler"}, "random"),
    ({"name": "MedianStoppingRule", "grace_period": 2}, "tpe"),
    ({"name": "freeze_thaw", "reduction_factor": 2, "max_paused": 3}, "freeze_thaw"),
]
IDS = [f"{settings['name']}-{sampler}" for settings, sampler in CASES]


@pytest.mark.parametrize(("settings", "sampler"), CASES, ids=IDS)
def test_workers_orders_and_kills_change_no_decision(settings, sampler):
    def make():
        return make_sweep(settings, sampler)

    one = Workers(make).run()
    wanted = decisions(one)
    assert len(one.trials) == 12
    assert one.is_over
    for num in (2, 4, 16):
        assert decisions(Workers(make, num, order=num).run()) == wanted
    killed = Workers(make, 4, order=7, kills=0.08)
    assert decisions(killed.run()) == wanted
    assert killed.num_kills > 1


def test_a_kill_after_any_result_changes_no_decision():
    def make():
        return make_sweep({"name": "asha"}, "random", num_slots=3, num_samples=4)

    one = Workers(make)
    wanted = decisions(one.run())
    for count in range(1, one.num_results):
        killed = Workers(make, 2, order=count, kill_after=count)
        assert decisions(killed.run()) == wanted
        assert killed.num_kills == 1


def test_trials_in_the_queue_train_on_after_the_result_that_ends_the_sweep():
    def end_reason(trial, result, trials):
        return "good enough" if result["accuracy"] > 0.6 else None

    def make():
        return make_sweep({"name": "asha"}, "random", end_reason=end_reason)

    one, other = Workers(make).run(), Workers(make, 6, order=5, kills=0.2).run()
    assert one.end_reason == "good enough"
    assert len(one.trials) < 12
    assert decisions(one) == decisions(other)


def test_a_budget_of_epochs_is_shared_among_trials_and_exceeded_by_few():
    def end_reason(trial, result, trials):
        return "spent" if ordered.num_results + 1 >= 30 else None

    ordered = make_sweep({"name": "fifo"}, "random", max_epochs=30, end_reason=end_reason)
    Workers(lambda: ordered).run()
    assert 30 <= ordered.num_results <= 36
    assert len(ordered.trials) > 5


def test_a_long_turn_is_cut_where_others_would_wait_for_it():
    ordered = make_sweep({"name": "asha", "reduction_factor": 9}, "random", num_slots=4)
    assert [ordered.limit(number) for number in range(4)] == [1] * 4
    ordered.report(0, 1, {"accuracy": 1.0})
    ordered.advance()
    assert ordered.limit(0) == 1 + 4 < MAX_T
    long = make_sweep({"name": "fifo"}, "random", num_slots=4)
    assert [long.limit(number) for number in range(4)] == [MAX_T] * 4


def test_an_option_that_is_a_mapping_is_proposed_whole():
    space = SearchSpace({"block": Choice([{"width": 4}, {"width": 8}])})
    scheduler = make_scheduler("fifo", objective=ACCURACY, epochs=MAX_T)
    searcher = OptunaSearcher(space, ACCURACY, "random", seed=1)
    ordered = OrderedSweep(searcher, scheduler, num_slots=1, num_samples=1, paths=space.parameters)
    assert ordered.config(0) in ({"block": {"width": 4}}, {"block": {"width": 8}})
    assert ordered.flat({"block": {"width": 4}}) == {"block": {"width": 4}}
