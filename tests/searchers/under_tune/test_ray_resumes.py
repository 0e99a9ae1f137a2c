"""Runs of Ray Tune that are repeated, interrupted, killed or restored, with our searcher.

After each run every Optuna trial has the state that its Tune trial's end has in our table, none is
left RUNNING, and the values are Tune's last ones.
"""

import sys

import pytest
from tuned_runs import agree, falling, inline, make, reasons, run, states


@pytest.fixture(autouse=True)
def by_value():
    """Send what stands in this file to Ray's workers whole: they cannot import tests."""
    import killed_run
    from ray import cloudpickle

    modules = sys.modules[__name__], killed_run
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    yield
    for module in modules:
        cloudpickle.unregister_pickle_by_value(module)


@inline
def test_a_run_that_is_interrupted_and_resumed_has_each_trial_once(tmp_path):
    import os
    import signal

    from ray.tune import Callback

    class Interrupt(Callback):
        def on_trial_complete(self, iteration, trials, trial, **info):
            os.kill(os.getpid(), signal.SIGINT)

    def searcher():
        return make(storage=tmp_path / "study.journal", study_name="s")

    settings = {"name": "run", "max_concurrent_trials": 1, "num_samples": 3}
    before, _ = run(falling, searcher(), tmp_path, callbacks=[Interrupt()], **settings)
    assert states(before)[0] == "COMPLETE"
    assert set(states(before)[1:]) <= {"RUNNING"}
    trials, of_tune = run(falling, searcher(), tmp_path, resume=True, **settings)
    agree(trials, of_tune)
    assert states(trials) == ["COMPLETE"] * 3


def kill_in_a_process(folder, wrapper):
    """Run a Tuner in a process of its own, on this one's cluster, which is killed."""
    import os
    import subprocess

    import killed_run
    import ray

    address = ray.get_runtime_context().gcs_address
    done = subprocess.run(
        [sys.executable, killed_run.__file__, str(folder), address, wrapper],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=False,
        capture_output=True,
    )
    assert done.returncode == -9, done.stderr.decode()


def leave_in_the_middle(folder, wrapper):
    """Run a Tuner in this process, which is left as if it were killed."""
    import killed_run

    def leave():
        raise SystemExit("left")

    with pytest.raises(SystemExit, match="left"):
        killed_run.run(str(folder), wrapper, leave)


on_a_cluster = [pytest.mark.slow, pytest.mark.cluster]


@pytest.mark.parametrize(
    ("wrapper", "under", "begin_and_die"),
    [
        ("limiter", "inline", leave_in_the_middle),
        ("repeater", "inline", leave_in_the_middle),
        pytest.param("limiter", "ray_cluster", kill_in_a_process, marks=on_a_cluster),
    ],
    ids=["limiter", "repeater", "limiter on a cluster"],
)
def test_a_killed_tuner_is_restored_with_its_own_searcher(
    wrapper, under, begin_and_die, tmp_path, request, monkeypatch
):
    import killed_run
    from ray import tune

    request.getfixturevalue(under)
    monkeypatch.setenv("TUNE_GLOBAL_CHECKPOINT_S", "0")
    begin_and_die(tmp_path, wrapper)
    tuner = tune.Tuner.restore(str(tmp_path / "run"), trainable=killed_run.train)
    results = tuner.fit()
    searcher = tuner._local_tuner._tune_config.search_alg
    while hasattr(searcher, "searcher"):
        searcher = searcher.searcher
    trials = searcher.study.trials
    assert reasons(trials) == ["completed"] * len(trials)
    assert states(trials) == ["COMPLETE"] * len(trials)
    assert len(results) == killed_run.NUM_SAMPLES
    of_tune = {result.metrics["trial_id"]: result for result in results}
    if wrapper == "repeater":
        assert [trial.value for trial in trials] == [
            pytest.approx(trial.params["rate"] / 2 + 0.5) for trial in trials
        ]
        assert len(trials) == 3
    else:
        assert len(trials) == 6
        assert searcher.num_ended == 6
        for trial in trials:
            last = of_tune[trial.user_attrs["tune_trial_id"]]
            assert trial.value == last.metrics["loss"]
            assert trial.params["rate"] == last.config["rate"]
