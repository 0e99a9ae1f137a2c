"""The simulation makes the calls that Ray Tune makes, in its order."""

import pytest

MAX_T = 9


def schedulers():
    from ray.tune import schedulers as ray_schedulers

    common = {"metric": "val_loss", "mode": "min", "time_attr": "training_iteration"}
    return {
        "fifo": ray_schedulers.FIFOScheduler(),
        "asha": ray_schedulers.AsyncHyperBandScheduler(
            max_t=MAX_T, grace_period=1, reduction_factor=3, **common
        ),
        "hyperband": ray_schedulers.HyperBandScheduler(max_t=MAX_T, reduction_factor=3, **common),
        "median_stopping": ray_schedulers.MedianStoppingRule(
            grace_period=2, min_samples_required=2, **common
        ),
    }


CASES = {
    "fifo": ("fifo", 1),
    "asha": ("asha", 1),
    "asha with trials that wait": ("asha", 3),
    "hyperband, which pauses trials": ("hyperband", 4),
    "median_stopping, which pauses trials": ("median_stopping", 3),
}
on_a_cluster = pytest.param(
    *CASES["hyperband, which pauses trials"],
    "ray_cluster",
    id="hyperband on a cluster",
    marks=[pytest.mark.slow, pytest.mark.cluster],
)


@pytest.mark.parametrize(
    ("name", "concurrent", "under"),
    [*(pytest.param(*case, "inline", id=name) for name, case in CASES.items()), on_a_cluster],
)
def test_one_worker_gives_the_calls_of_tune(
    tmp_path, problem, name, concurrent, under, request, monkeypatch
):
    from inline_actors import InlineActorManager
    from recording import Log, ScriptedSearcher, recorded

    from tune_tf.simulation import simulate

    request.getfixturevalue(under)
    monkeypatch.setattr(InlineActorManager, "slots", 1)
    ours = Log()
    simulate(
        problem,
        ScriptedSearcher(ours),
        recorded(schedulers()[name], ours),
        num_samples=8,
        max_concurrent_trials=concurrent,
    )
    theirs = Log()
    run_tune(problem, theirs, name, concurrent, tmp_path)
    assert ours.calls == theirs.calls


def run_tune(problem, log, name, concurrent, path):
    """Run the same sweep under Ray Tune, one trial at a time."""
    from ray import tune
    from recording import ScriptedSearcher, recorded

    class Training(tune.Trainable):
        def setup(self, config):
            self.x = config["x"]

        def step(self):
            values = {"x": self.x}
            return {"val_loss": float((values["x"] * 7 + 3) % 10 + 1 / (self.iteration + 1))}

        def save_checkpoint(self, checkpoint_dir):
            return {"x": self.x}

        def load_checkpoint(self, checkpoint):
            self.x = checkpoint["x"]

        def reset_config(self, new_config):
            self.x = new_config["x"]
            return True

    Training.default_resource_request = classmethod(
        lambda cls, config: tune.PlacementGroupFactory([{"CPU": 4}])
    )
    tune.run(
        Training,
        search_alg=ScriptedSearcher(log),
        scheduler=recorded(schedulers()[name], log),
        num_samples=8,
        max_concurrent_trials=concurrent,
        stop={"training_iteration": MAX_T},
        storage_path=str(path),
        reuse_actors=True,
        verbose=0,
    )
