"""Promotion ASHA in slots that are driven by hand."""

from tune_tf.objective import Objective


def make(max_t=9, grace_period=1, reduction_factor=3, mode="min"):
    from tune_tf.config.scheduler_settings import AshaSettings
    from tune_tf.schedulers.promotion import PromotionAshaScheduler

    settings = AshaSettings(
        max_t=max_t,
        grace_period=grace_period,
        reduction_factor=reduction_factor,
        type="promotion",
    )
    return PromotionAshaScheduler(Objective("loss", mode), settings)


def slots(curve, num_samples, *, scheduler=None, **options):
    from slots import Slots

    return Slots(scheduler or make(), curve, num_samples, **options)


def in_order(number, iteration):
    """The first trial is the best, and all fall alike."""
    return number + 1 / iteration


def reversed_order(number, iteration):
    """The last trial is the best."""
    return -number + 1 / iteration


def assert_every_iteration_once(swept):
    for number, (_, last) in swept.ends().items():
        steps = [step for which, step in swept.reports if which == number]
        assert steps == list(range(1, (last or 0) + 1)), f"trial {number} did {steps}"
