"""Configs and metrics of Ray's documented examples, with our searcher.

After each run every Optuna trial has the state that its Tune trial's end has in our table, none is
left RUNNING, and the values are Tune's last ones.
"""

from tuned_runs import agree, falling, inline, make, run, states

from tune_tf.objective import Objective


@inline
def test_a_define_by_run_function_that_returns_constants(tmp_path):
    def space(trial):
        trial.suggest_float("rate", 1, 2)
        return {"constant": 1, "group": {"shape": (2, 3)}}

    trials, of_tune = run(falling, make(space), tmp_path, num_samples=2)
    agree(trials, of_tune)
    assert states(trials) == ["COMPLETE"] * 2
    for trial in of_tune.values():
        assert trial.config["constant"] == 1
        assert trial.config["group"] == {"shape": (2, 3)}


@inline
def test_nested_metrics_and_tune_runs_own_metric_and_mode(tmp_path):
    def grouped(config):
        from ray import tune

        for iteration in (1, 2):
            tune.report({"validation": {"loss": config["rate"] / iteration}})

    searcher = make(objective=Objective("validation/loss", "min"))
    trials, _ = run(
        grouped,
        searcher,
        tmp_path,
        num_samples=2,
        metric="validation/loss",
        mode="min",
        config={"other": 1},
    )
    assert states(trials) == ["COMPLETE"] * 2
    for trial in trials:
        assert trial.intermediate_values == {1: trial.params["rate"], 2: trial.params["rate"] / 2}
