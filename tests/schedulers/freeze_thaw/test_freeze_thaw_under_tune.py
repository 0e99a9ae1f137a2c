"""``freeze_thaw`` with the real searcher: in virtual time, under Ray Tune and by the contract."""

import math
import shutil
from collections import Counter

import pytest
from paused_sweeps import MAX_T, NUM_CONCURRENT, STATES, counting, sweep
from test_freeze_thaw import make

from tune_tf.errors import InvalidSettingsError
from tune_tf.objective import Objective
from tune_tf.outcome import STOP_CAUSE, STOP_REASON
from tune_tf.space import Choice, Constant, Float, Int, SearchSpace, flatten
from tune_tf.testing import SchedulerContract
from tune_tf.tune_internals.stub_controller import StubController

SPACE = SearchSpace(
    {
        "optimizer": {
            "name": Choice(["adam", "sgd"]),
            "lr": Float(1e-4, 1.0, log=True),
            "momentum": Float(0.0, 0.99, when={"optimizer.name": "sgd"}),
        },
        "layers": Choice([[16], [32, 16], None]),
        "batch": Int(8, 256, log=True),
        "units": Int(4, 64, step=4),
        "seed": Constant(3),
    }
)


def curve(values, iteration):
    momentum = abs(values.get("optimizer/momentum", 0.9) - 0.9)
    layers = 0.3 if values["layers"] is None else 0.1 * len(values["layers"])
    learning = 0.1 * (math.log10(values["optimizer/lr"]) + 2) ** 2
    return learning + 0.05 * momentum + layers + 0.02 * values["batch"] / 256 + 1 / iteration


def iteration_of(trial):
    return trial.last_result.get("training_iteration", 0)


def simulated(name="freeze_thaw", sampler="freeze_thaw", *, num_samples=30, **options):
    """Return the controller of a sweep in which trials take turns, its results, and its study."""
    from tune_tf.schedulers import scheduler
    from tune_tf.searchers import OptunaSearcher

    objective, space = Objective("loss", "min"), options.get("space", SPACE)
    searcher = options.get("searcher") or OptunaSearcher(space, objective, sampler, 1)
    settings = {"seed": 1} if name == "freeze_thaw" else {}
    controller = StubController(
        searcher,
        scheduler(name, objective, space=space, epochs=9, **settings),
        num_slots=options.get("num_workers", 2),
        max_t=9,
        num_samples=num_samples,
        max_concurrent=options.get("max_concurrent"),
    )
    results = []
    controller.fill()
    while controller.running:
        trial = min(controller.running, key=iteration_of)
        iteration = iteration_of(trial) + 1
        loss = options.get("curve", curve)(flatten(trial.config, space.parameters), iteration)
        results.append((trial.trial_id, iteration, loss))
        controller.report(trial, iteration, {"loss": loss})
        controller.fill()
    assert [trial.is_finished() for trial in controller.get_trials()] == [True] * num_samples
    return controller, results, getattr(searcher, "study", None)


def test_proposals_are_valid_configs_and_better_than_random_ones():
    controller, _, study = simulated(num_samples=60)
    for trial in study.trials:
        assert ("optimizer/momentum" in trial.params) == (trial.params["optimizer/name"] == "sgd")
        assert trial.params["units"] in range(4, 65, 4)
        assert trial.params["batch"] in range(8, 257)
    assert {type(trial.params["batch"]) for trial in study.trials} == {int}
    ends = [curve(flatten(trial.config, SPACE.parameters), 9) for trial in controller.get_trials()]
    assert sorted(ends[-20:])[10] < sorted(ends[:9])[1]


def test_a_space_with_fewer_values_than_trials_is_tried_again_and_again():
    space = SearchSpace({"x": Int(0, 3)})
    controller, _, _ = simulated(space=space, curve=lambda values, step: values["x"] + 1 / step)
    assert len(controller.get_trials()) == 30
    assert {trial.config["x"] for trial in controller.get_trials()} == {0, 1, 2, 3}


def test_under_another_scheduler_the_sampler_draws_as_the_random_one():
    assert simulated("asha", "freeze_thaw")[1] == simulated("asha", "random")[1]


def test_the_sampler_refuses_several_objectives():
    from tune_tf.searchers import OptunaSearcher

    wanted = [Objective(name, "min") for name in ("loss", "size")]
    expected = "sampler 'freeze_thaw' supports one objective, not 2"
    with pytest.raises(InvalidSettingsError, match=expected):
        OptunaSearcher(SPACE, wanted, "freeze_thaw")


@pytest.mark.parametrize(
    "under",
    ["inline", pytest.param("ray_cluster", marks=[pytest.mark.slow, pytest.mark.cluster])],
)
def test_every_iteration_is_done_once_and_every_trial_ends_alike_in_optuna(
    tmp_path, request, under
):
    request.getfixturevalue(under)
    trials, told, iterations, watch = sweep(tmp_path, make(), num_samples=16)
    assert {trial.status for trial in trials} == {"TERMINATED"}
    assert max(Counter(iterations).values()) == 1
    assert watch.most_at_a_time <= NUM_CONCURRENT
    for trial in trials:
        last = trial.last_result["training_iteration"]
        done = [step for name, step in iterations if name == trial.trial_id]
        assert done == list(range(1, last + 1))
        reason = trial.last_result[STOP_REASON]
        assert told[trial.trial_id].state.name == STATES[reason]
        assert last == MAX_T if reason == "completed" else last in (1, 3)
        assert (STOP_CAUSE in trial.last_result) == (reason == "pruned")
    assert {trial.last_result[STOP_REASON] for trial in trials} == {"completed", "pruned"}
    best = min(trials, key=lambda trial: trial.config["x"])
    assert best.last_result[STOP_REASON] == "completed"
    assert (tmp_path / "taken_up.txt").exists(), "no trial was taken up again"


@pytest.mark.usefixtures("inline")
def test_under_tune_the_searcher_gets_the_schedulers_proposals(tmp_path):
    from ray import tune

    from tune_tf.searchers import OptunaSearcher

    made, proposed = make(), []
    propose = made.propose
    made.propose = lambda controller: proposed.append(propose(controller)) or proposed[-1]
    space = SearchSpace({"x": Float(0.0, 1.0)})
    analysis = tune.run(
        counting(tmp_path),
        search_alg=OptunaSearcher(space, Objective("loss", "min"), "freeze_thaw", 1),
        scheduler=made,
        num_samples=20,
        max_concurrent_trials=2,
        storage_path=str(tmp_path),
        reuse_actors=True,
        verbose=0,
    )
    tried = [trial.config["x"] for trial in analysis.trials]
    assert set(tried[9:]) <= {config["x"] for config in proposed if config}
    assert proposed[:9] == [None] * 9


@pytest.mark.usefixtures("inline")
def test_a_sweep_ends_where_rays_limit_counts_paused_trials(tmp_path):
    from ray import tune
    from ray.tune.search import ConcurrencyLimiter
    from ray.tune.search.optuna import OptunaSearch

    search = OptunaSearch({"x": tune.uniform(0, 1)}, metric="loss", mode="min", seed=0)
    analysis = tune.run(
        counting(tmp_path),
        search_alg=ConcurrencyLimiter(search, max_concurrent=1),
        scheduler=make(),
        num_samples=12,
        storage_path=str(tmp_path),
        reuse_actors=True,
        verbose=0,
    )
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"] * 12
    reasons = {trial.last_result[STOP_REASON] for trial in analysis.trials}
    assert reasons == {"completed", "pruned"}


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
class TestFreezeThaw(SchedulerContract):
    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _migrated(cls, empty_store):
        cls.empty_store = empty_store

    @classmethod
    def make_store(cls, folder):
        shutil.copy(cls.empty_store, folder / "mlflow.db")
        return super().make_store(folder)

    @classmethod
    def make_scheduler(cls):
        space = SearchSpace({"number": Int(0, 7), "rate": Float(0.0, 1.0)})
        return make(space=space, epochs=cls.max_t, reduction_factor=2)
