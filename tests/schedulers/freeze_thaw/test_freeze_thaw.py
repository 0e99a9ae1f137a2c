"""The scheduler ``freeze_thaw``, driven by hand with Tune's calls."""

import re
import time
from collections import Counter
from functools import partial

import numpy as np
import pytest
from ray.tune.experiment import Trial
from slots import Slots, assert_every_iteration_once

from tune_tf.constraint import Constraint
from tune_tf.errors import InvalidSettingsError
from tune_tf.objective import Objective
from tune_tf.outcome import STOP_CAUSE, STOP_REASON
from tune_tf.schedulers.gaussian_process import one_thread
from tune_tf.space import Constant, Float, SearchSpace

SPACE = SearchSpace({"x": Float(0.0, 1.0)})
LIMITS = [(1, 1, 3), (2, 1, 3), (9, 1, 3), (20, 2, 2), (20, 1, 4), (27, 2, 3)]
"""``epochs``, ``grace_period`` and ``reduction_factor``."""


def make(mode="min", space=SPACE, name="freeze_thaw", **settings):
    from tune_tf.schedulers import scheduler

    settings = {"epochs": 9, "seed": 1} | settings
    return scheduler(name, Objective("loss", mode), space=space, **settings)


def x_of(number):
    return number * 0.618 % 1


def smooth(number, iteration):
    """Loss with its least value at an ``x`` of 0.3."""
    return (x_of(number) - 0.3) ** 2 + 1 / iteration


def noisy(seed, scale=1.0):
    losses = np.random.default_rng(seed).normal(scale=scale, size=(64, 32))
    return lambda number, iteration: float(losses[number, iteration] + smooth(number, iteration))


def constant(number, iteration):
    return 0.5


class Sweep(Slots):
    """Slots whose trials have configs; counts trials at a time, and waiting ones."""

    most_active = most_paused = 0

    def __init__(self, scheduler, curve, num_samples, config=None, stop=None, **options):
        super().__init__(scheduler, curve, num_samples, **options)
        self.config = config or (lambda number: {"x": x_of(number)})
        self.stop = stop

    def make(self, number, last_result=None):
        trial = Trial(
            "trainable",
            stub=True,
            trial_id=str(number),
            config=self.config(number),
            stopping_criterion={"training_iteration": self.stop} if self.stop else None,
        )
        trial.run_metadata.last_result = dict(last_result or {})
        return trial

    def add(self, number, status="PENDING"):
        trial = self.make(number)
        trial.set_status(status)
        self.scheduler.on_trial_add(self, trial)
        self.trials.append(trial)
        return trial

    def fill(self):
        super().fill()
        self.count()

    def step(self, trial, loss=None):
        decision = super().step(trial, loss)
        self.count()
        return decision

    def has_completed(self, trial):
        return trial.last_result[STOP_REASON] == "completed"

    def count(self):
        states = Counter(trial.status for trial in self.trials)
        self.most_active = max(self.most_active, states["RUNNING"] + states["PENDING"])
        self.most_paused = max(self.most_paused, states["PAUSED"])

    def assert_ended(self, max_t, reasons=("completed", "pruned")):
        """Every trial ended at ``max_t`` or was pruned below it, each iteration done once."""
        assert len(self.trials) == self.num_samples
        assert {trial.status for trial in self.trials} <= {"TERMINATED"}
        for reason, last in self.ends().values():
            assert reason in reasons
            assert reason != "completed" or last == max_t
            assert reason != "pruned" or last < max_t
        assert_every_iteration_once(self)
        assert self.most_active <= self.num_slots


def causes(swept):
    """Return each pruned trial's best value in its cause, and its chance in percent."""
    texts = [
        t.last_result.get(STOP_CAUSE)
        for t in swept.trials
        if t.last_result[STOP_REASON] == "pruned"
    ]
    found = [re.fullmatch(r"chance to beat (\S+): (\d+)%", text or "") for text in texts]
    assert all(found), texts
    return [(float(each[1]), int(each[2])) for each in found]


@pytest.mark.parametrize("limits", LIMITS, ids=str)
@pytest.mark.parametrize(("num_samples", "num_slots"), [(1, 1), (2, 16), (3, 1), (8, 4), (40, 2)])
def test_every_trial_ends_completed_at_the_limit_or_pruned_before(limits, num_samples, num_slots):
    max_t, grace_period, factor = limits
    settings = {"epochs": max_t, "grace_period": grace_period, "reduction_factor": factor}
    for curve in (noisy(3), constant)[: 1 + (num_samples < 40)]:
        swept = Sweep(make(**settings), curve, num_samples, num_slots=num_slots)
        swept.run()
        swept.assert_ended(max_t)


def test_the_best_config_runs_to_the_end_and_most_others_do_not():
    swept = Sweep(make(), smooth, 40, num_slots=2)
    swept.run()
    ends = swept.ends()
    best = min(ends, key=lambda number: smooth(number, 9))
    assert ends[best] == ("completed", 9)
    assert len(swept.reports) < 40 * 9 / 2
    assert {last for reason, last in ends.values() if reason == "pruned"} <= {1, 3}


@pytest.mark.parametrize("min_chance", [0.05, 0.5])
@pytest.mark.parametrize("num_slots", [1, 4])
def test_trials_stopped_at_the_end_had_less_than_the_least_chance(min_chance, num_slots):
    swept = Sweep(make(min_chance=min_chance), noisy(6), 20, num_slots=num_slots)
    swept.run()
    found = causes(swept)
    assert found
    best = min(each.last_result["loss"] for each in swept.trials if swept.has_completed(each))
    assert [value for value, _ in found] == pytest.approx([best] * len(found), rel=1e-3)
    assert max(chance for _, chance in found) <= 100 * min_chance


def test_a_trial_that_is_chosen_takes_the_slot_before_the_searcher_is_asked():
    swept = Sweep(make(), smooth, 40, num_slots=2)
    for _ in range(60):
        swept.fill()
        trial = swept.running[0]
        decision = swept.step(trial)
        chosen = [each for each in swept.trials if each.status == "PENDING"]
        assert len(chosen) <= (decision != "CONTINUE")
        if chosen:
            assert not swept.propose(), "the slot is taken"
            swept.fill()
            assert chosen[0].status == "RUNNING"


@pytest.mark.parametrize("max_paused", [1, 3])
@pytest.mark.parametrize("good", [0, 2, 5])
def test_of_too_many_paused_the_good_one_is_kept(max_paused, good):
    swept = Sweep(
        make(max_paused=max_paused),
        lambda number, step: (0.1 if number == good else 1 + x_of(number) / 100) + 1 / step,
        12,
    )
    swept.run()
    assert swept.ends()[good] == ("completed", 9)


@pytest.mark.parametrize(
    "curve",
    [
        lambda number, step: 3.4e38 if number % 3 else number / step,
        lambda number, step: (number % 3 - 1) * 1e150,
        lambda number, step: 1e-310 * number,
        lambda number, step: 0.693 if number < 15 else 0.693 - number / 50,
        lambda number, step: np.float32(number / step),
        lambda number, step: number,
    ],
    ids=["large", "larger", "tiny", "no progress at first", "float32", "whole"],
)
def test_losses_of_any_size_can_be_modelled(curve):
    swept = Sweep(make(), curve, 30, num_slots=2)
    swept.run()
    swept.assert_ended(9)


@pytest.mark.parametrize(
    "config",
    [
        lambda number: {"x": 5.0},
        lambda number: {"x": "none of its values"},
        lambda number: {"y": number},
        lambda number: {"x": {"in": "a group"}} if number % 2 else {"x": 0.5},
    ],
    ids=["beyond", "text", "without", "a group"],
)
def test_a_trial_whose_config_is_not_of_the_space_is_tried_all_the_same(config):
    swept = Sweep(make(), noisy(3), 20, num_slots=2, config=config)
    swept.run()
    swept.assert_ended(9)


@pytest.mark.parametrize("space", [None, SearchSpace({"x": Constant(1)})])
def test_a_search_space_with_something_to_model_is_needed(space):
    with pytest.raises(InvalidSettingsError, match=r"space: freeze_thaw models.*space=\.\.\."):
        make(space=space)


def one_decision(swept):
    swept.step(swept.running[0])
    swept.scheduler.propose(swept)
    swept.fill()


def test_decisions_on_a_thousand_trials_are_quick_and_the_state_is_small():
    names = [f"x{each}" for each in range(6)]
    configs = np.random.default_rng(0).random((1100, 6))
    swept = Sweep(
        make(space=SearchSpace(dict.fromkeys(names, Float(0.0, 1.0)))),
        lambda number, step: float(np.square(configs[number] - 0.3).sum() + 1 / step),
        1100,
        config=lambda number: dict(zip(names, configs[number].tolist(), strict=True)),
    )
    swept.fill()  # one runs, so that nothing is decided meanwhile
    for number in range(1, 1000):
        trial = swept.add(number, status="TERMINATED" if number % 10 else "PAUSED")
        last = 9 if number % 10 == 1 else 1
        result = {"loss": swept.curve(number, last), "training_iteration": last}
        swept.scheduler.on_trial_complete(swept, trial, result)
    assert len(swept.scheduler.changed_state()) < 1e6
    square, times_s = np.random.default_rng(0).random((1000, 1000)), np.zeros(2)
    for _ in range(30):
        for each, act in enumerate([partial(one_decision, swept), lambda: square[:200] @ square]):
            begin_s = time.thread_time()
            with one_thread():
                act()
            times_s[each] += time.thread_time() - begin_s
    assert times_s[0] < 9 * times_s[1]  # 0.1 s on a common machine, on which other tests run too


def test_a_full_run_that_violates_a_constraint_is_never_the_best():
    made = make(constraints=Constraint.from_dict({"size": "<= 1"}))
    swept = Sweep(made, smooth, 4)
    small, large = swept.add(0), swept.add(1)
    made.on_trial_complete(swept, small, {"loss": 0.5, "training_iteration": 1, "size": 1})
    made.on_trial_complete(swept, large, {"loss": 0.1, "training_iteration": 9, "size": 2})
    assert made.best_value == 0.5
