"""PBT under scripted trials: donors, changed configs and their records."""

import math
import random
from unittest.mock import Mock

import numpy as np
import pytest

from tune_tf.objective import Objective
from tune_tf.outcome import CONFIG_CHANGED_AT
from tune_tf.space import Float, Int, SearchSpace

LOSS = Objective("val_loss", "min")
SPACE = SearchSpace({"optimizer": {"rate": Float(0.1, 1.0)}})
RATES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)


@pytest.fixture(autouse=True)
def seeded():
    random.seed(1)


def make(name="pbt", **settings):
    from tune_tf.schedulers import scheduler

    return scheduler(
        name,
        LOSS,
        **{
            "space": SPACE,
            "epochs": 8,
            "perturbation_interval": 2,
            "quantile_fraction": 0.25,
            **settings,
        },
    )


def controller_of(scheduler, curves, **settings):
    from scripted_trials import Controller

    configs = [{"optimizer": {"rate": rate}, "kept": 7} for rate in RATES[: len(curves)]]
    return Controller(scheduler, curves, **{"configs": configs, "slots": len(curves), **settings})


def flat(value):
    return lambda iteration: value


def test_a_searcher_beside_pbt_is_accepted():
    from ray.tune.search import ConcurrencyLimiter, Searcher, SearchGenerator

    scheduler = make()
    controller = controller_of(scheduler, [flat(1)])
    controller.search_alg = SearchGenerator(ConcurrencyLimiter(Searcher("val_loss", "min"), 2))
    controller.add(controller.waiting.pop())
    assert len(scheduler._trial_state) == 1


@pytest.mark.parametrize("slots", [1, 2, 4])
def test_every_trial_ends_complete_whatever_the_slots(slots):
    curves = [flat(value) for value in range(4)]
    controller = controller_of(make(), curves, slots=slots).run()
    assert {reason for _, reason in controller.ends().values()} == {"completed"}


def test_the_worst_trial_copies_the_best_with_a_perturbed_nested_value():
    scheduler = make(resample_probability=0)
    controller = controller_of(scheduler, [flat(value) for value in range(4)]).run()
    best, *_, worst = controller.trials
    assert best.config == {"optimizer": {"rate": 0.1}, "kept": 7}
    rate = worst.config["optimizer"]["rate"]
    assert 0.1 <= rate <= 1.0
    assert rate != RATES[3]
    assert worst.config["kept"] == 7


def test_the_last_iteration_with_the_proposed_config_is_told():
    controller = controller_of(make(), [flat(value) for value in range(4)]).run()
    changed = {
        trial.trial_id: trial.last_result.get(CONFIG_CHANGED_AT) for trial in controller.trials
    }
    assert changed["t0"] is None
    assert changed["t3"] == 4  # at 2 the best one was not known as such, nor saved


@pytest.mark.parametrize("kind", ["nan", "error"])
@pytest.mark.parametrize("iteration", [1, 2, 3, 4, 5])
def test_nobody_waits_for_or_copies_a_trial_that_died(kind, iteration):
    def dies(at):
        if at < iteration:
            return -1.0
        return math.nan if kind == "nan" else 1 / 0

    scheduler = make()
    controller = controller_of(scheduler, [flat(1), dies, flat(2), flat(3)])
    donors = []
    exploit = scheduler._exploit

    def note(tune_controller, trial, donor):
        donors.append((donor.trial_id, controller.reached[donor.trial_id]))
        exploit(tune_controller, trial, donor)

    scheduler._exploit = note
    ends = controller.run().ends()
    assert ends.pop("t1")[1] == {"nan": "diverged", "error": None}[kind]
    assert {reason for _, reason in ends.values()} == {"completed"}
    assert all(reached < iteration for donor, reached in donors if donor == "t1")


def test_a_trial_that_diverged_is_no_donor_while_tune_still_saves_it():
    scheduler = make()
    controller = controller_of(scheduler, [flat(1), flat(2), flat(3), flat(4)])
    controller.run(
        until=lambda it: len(it.trials) == 4 and min(it.reached.values(), default=0) == 2
    )
    best = controller.trials[0]
    result = {"val_loss": math.nan, "training_iteration": 3}
    assert scheduler.on_trial_result(controller, best, result) == "STOP"
    assert best.status == "RUNNING"
    lower, upper = scheduler._quantiles()
    assert best not in [*lower, *upper]


def test_checkpoints_of_donors_are_needed_and_all_while_one_is_being_made():
    from ray.tune import Checkpoint

    made = {"a": Checkpoint("/sweep/a/checkpoint_3"), "b": object(), "c": None}
    scheduler = make()
    scheduler._trial_state = {
        Mock(path=f"/sweep/{name}"): Mock(last_checkpoint=made[name]) for name in made
    }
    assert scheduler.needed_checkpoints == {"/sweep/a/checkpoint_3", "/sweep/b"}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Ray calls SciPy as of old
def test_pb2_keeps_its_changes_in_the_bounds():
    scheduler = make("pb2")
    curves = [lambda at, rate=rate: rate / at for rate in RATES]
    controller = controller_of(scheduler, curves).run()
    assert scheduler._num_perturbations > 0
    assert all(
        SPACE.parameters["optimizer/rate"].error_for(t.config["optimizer"]["rate"]) is None
        for t in controller.trials
    )
    assert all(t.config["kept"] == 7 for t in controller.trials)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Ray calls SciPy as of old
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("seed", range(3))
def test_pb2_suggests_for_a_logarithmic_range_what_rays_does_for_logarithms(seed):
    from ray.tune.schedulers.pb2 import PB2

    space = SearchSpace(
        {"rate": Float(1e-6, 1.0, log=True), "width": Int(2, 4096, log=True), "kept": 7}
    )
    ours = make("pb2", space=space)
    rays = PB2(
        "training_iteration",
        "val_loss",
        "min",
        perturbation_interval=2,
        hyperparam_bounds={
            "rate": [math.log(1e-6), 0.0],
            "width": [math.log(2), math.log(4096)],
        },
    )
    configs = [{"rate": 10 ** (-0.8 * k), "width": 2 ** (k + 1), "kept": 7} for k in range(8)]
    logarithms = [
        {"rate": math.log(each["rate"]), "width": math.log(each["width"]), "kept": 7}
        for each in configs
    ]
    curves = [lambda at, k=k: 9 - at / (1 + abs(k - 5)) for k in range(8)]
    ended = []
    for each, stop, given in ((ours, None, configs), (rays, {"training_iteration": 8}, logarithms)):
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002  Ray draws from it
        controller = controller_of(each, curves, stop=stop, configs=given).run()
        ended.append([trial.config for trial in controller.trials])
    assert ours._num_perturbations == rays._num_perturbations > 0
    assert any(config not in configs for config in ended[0])
    for config, logarithm in zip(*ended, strict=True):
        assert math.log(config["rate"]) == pytest.approx(logarithm["rate"], abs=1e-5)
        assert config["width"] == round(math.exp(logarithm["width"]))
        for path in ("rate", "width"):
            assert space.parameters[path].error_for(config[path]) is None
            assert type(config[path]) is type(configs[0][path])


@pytest.mark.parametrize("seed", range(3))
def test_decisions_on_finite_metrics_are_rays(seed):
    from ray.tune.schedulers import PopulationBasedTraining

    curves = [lambda at, i=i: (i * 7 % 11) / at for i in range(6)]
    ours = make(resample_probability=0)
    rays = PopulationBasedTraining(
        "training_iteration",
        "val_loss",
        "min",
        perturbation_interval=2,
        hyperparam_mutations=ours._hyperparam_mutations,
        custom_explore_fn=ours._custom_explore_fn,
        resample_probability=0,
    )
    configs = []
    for each, stop in ((ours, None), (rays, {"training_iteration": 8})):
        random.seed(seed)
        controller = controller_of(each, curves, stop=stop).run()
        configs.append([trial.config for trial in controller.trials])
    assert configs[0] == configs[1]
    assert configs[0] != [{"optimizer": {"rate": rate}, "kept": 7} for rate in RATES]
