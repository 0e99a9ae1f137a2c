"""Rungs read from Ray's own schedulers; fails if a release of Ray moves them."""

import pytest


@pytest.fixture
def controller_calling():
    """Return a class of controllers with some attributes, which call functions."""
    from ray.tune.execution.tune_controller import TuneController

    class Calling(TuneController):
        def __init__(self, **attributes):
            self.__dict__.update(attributes)

        def __del__(self):
            pass

        def call(self, function):
            return function()

    return Calling


@pytest.fixture
def rungs_under(controller_calling):
    """Return the rungs that a searcher sees while a controller with a scheduler calls it."""
    from tune_tf.tune_internals import controller

    return lambda scheduler: controller_calling(_scheduler_alg=scheduler).call(controller.rungs)


def test_outside_of_tune_there_are_no_rungs():
    from tune_tf.tune_internals import controller

    assert controller.rungs() == ()
    assert controller.num_active() is None
    assert controller.last_result("a") == {}


@pytest.mark.parametrize(
    ("settings", "rungs"),
    [
        ({"max_t": 27, "grace_period": 1, "reduction_factor": 3}, (1, 3, 9, 27)),
        ({"max_t": 16, "grace_period": 2, "reduction_factor": 2}, (2, 4, 8, 16)),
        ({"max_t": 9, "grace_period": 1, "reduction_factor": 3, "brackets": 2}, (1, 3, 9)),
    ],
)
def test_rungs_of_rays_asha_are_its_milestones(rungs_under, settings, rungs):
    from ray.tune.schedulers import AsyncHyperBandScheduler

    assert rungs_under(AsyncHyperBandScheduler(**settings)) == rungs


@pytest.mark.parametrize(
    ("max_t", "factor", "rungs"), [(81, 3, (1, 3, 9, 27, 81)), (16, 2, (1, 2, 4, 8, 16))]
)
def test_rungs_of_rays_hyperband_are_its_milestones(rungs_under, max_t, factor, rungs):
    from ray.tune.schedulers import HyperBandScheduler

    scheduler = HyperBandScheduler("training_iteration", "l", "min", max_t, factor)
    assert rungs_under(scheduler) == rungs


def test_a_scheduler_that_says_its_rungs_is_believed(rungs_under):
    from ray.tune.schedulers import FIFOScheduler

    scheduler = FIFOScheduler()
    scheduler.rungs = (9, 1, 3)
    assert rungs_under(scheduler) == (1, 3, 9)


def test_a_scheduler_that_holds_its_rungs_elsewhere_has_none(rungs_under):
    class Strange:
        _brackets = (object(),)
        _s_max_1 = 3

    assert rungs_under(Strange()) == ()


def test_a_repeater_is_found_among_the_searchers_of_the_run(controller_calling):
    from ray.tune.search import ConcurrencyLimiter, Repeater, Searcher, SearchGenerator

    from tune_tf.tune_internals import controller

    class Plain(Searcher):
        pass

    def is_repeated(searcher):
        running = controller_calling(_search_alg=SearchGenerator(searcher))
        return running.call(controller.is_repeated)

    assert not is_repeated(ConcurrencyLimiter(Plain(), 3))
    assert is_repeated(ConcurrencyLimiter(Repeater(Plain()), 3))
