"""Settings in the words of other tools are refused with the line to write."""

import pytest

from tune_tf.config import SweepConfig
from tune_tf.errors import InvalidSettingsError

MINIMAL = {
    "name": "digits",
    "workload": "tune_tf.workloads.digits:DigitsMLP",
    "objective": {"metric": "val_accuracy", "mode": "max"},
    "space": {"width": 64},
    "budget": {"num_samples": 2},
}


def refusal(**settings):
    with pytest.raises(InvalidSettingsError) as caught:
        SweepConfig.from_dict({**MINIMAL, **settings})
    return str(caught.value)


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("max_trials", 3, "budget: {num_samples: 3}"),
        ("n_trials", 5, "budget: {num_samples: 5}"),
        ("maxTrialCount", 3, "budget: {num_samples: 3}"),
        ("timeout", 60, "budget: {time_budget_s: 60}"),
        ("patience", 3, "budget: {patience: 3}"),
        ("metric", "val_loss", "objective: {metric: val_loss}"),
        ("goal", "maximize", "objective: {mode: max}"),
        ("method", "bayes", "searcher: {sampler: tpe}"),
        ("parameters", {"lr": 1}, "space: ..."),
        ("hyperparameters", {}, "space: ..."),
        ("batch_size", 32, "space: {batch_size: 32}"),
        (
            "early_terminate",
            {"type": "hyperband", "min_iter": 3},
            "scheduler: {name: asha, grace_period: 3}",
        ),
        ("early_terminate", {"type": "hyperband"}, "scheduler: {name: asha, grace_period: 1}"),
        ("program", "train.py", "workload: train.py:MyWorkload"),
        ("executions_per_trial", 3, "parallelism: {kind: ensemble, num_members: 3}"),
        ("gpus", 1, "resources: {gpus: 1}"),
        ("n_jobs", 2, "max_concurrent_trials: 2"),
        ("tracking_uri", "sqlite:///x.db", "mlflow: {tracking_uri: sqlite:///x.db}"),
        ("max_epochs", 5, "epochs: 5"),
        ("max_length", {"epochs": 32}, "epochs: 32"),
        ("max_length", {"batches": 6400}, "epochs: ..."),
        ("max_restarts", 5, "max_failures: 5"),
        ("slots_per_trial", 2, "parallelism: {num_replicas: 2}"),
        ("smaller_is_better", False, "objective: {mode: max}"),
        ("metric", {"name": "a", "goal": "maximize"}, "objective: {metric: a, mode: max}"),
        ("metric", {"name": "a"}, "objective: {metric: a, mode: min}"),
        ("goal", 0.99, "budget: {target: 0.99}"),
        ("min_iter", 3, "scheduler: {name: asha, grace_period: 3}"),
    ],
)
def test_a_key_of_another_tool_is_refused_with_the_line_to_write(key, value, line):
    assert refusal(**{key: value}) == f"{key}: unknown key: write `{line}`"


@pytest.mark.parametrize(
    ("section", "value", "line"),
    [
        ("objective", "val_accuracy", "{metric: val_accuracy, mode: max}"),
        ("objective", "val_loss", "{metric: val_loss, mode: min}"),
        ("budget", 10, "{num_samples: 10}"),
        ("scheduler", "asha", "{name: asha}"),
        ("searcher", "tpe", "{sampler: tpe}"),
        ("mlflow", "sqlite:///x.db", "{tracking_uri: sqlite:///x.db}"),
        ("mlflow", False, "null"),
        ("parallelism", 2, "{num_replicas: 2}"),
        ("parallelism", "folds", "{kind: folds}"),
        ("resources", {"gpu": 1}, "gpus: 1"),
        ("searcher", {"method": "bayes"}, "sampler: tpe"),
        ("objective", {"metric": "a", "goal": "minimize"}, "mode: min"),
        ("objective", {"metric": "a", "type": "maximize"}, "mode: max"),
        ("objective", {"metric": "a", "goal": 0.9}, "budget: {target: 0.9}"),
        ("searcher", {"name": "random"}, "sampler: random"),
        ("searcher", {"name": "adaptive_asha"}, "scheduler: {name: asha}"),
        ("scheduler", {"name": "asha", "divisor": 4}, "reduction_factor: 4"),
    ],
)
def test_a_plain_value_for_a_section_is_refused_with_the_section_to_write(section, value, line):
    assert f"write `{line}`" in refusal(**{section: value})


def test_a_misspelt_mode_is_refused_with_the_right_one():
    text = refusal(objective={"metric": "val_accuracy", "mode": "maximize"})
    assert text == "objective: mode must be 'min' or 'max', not 'maximize': write 'max'"
