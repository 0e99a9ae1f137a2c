"""What each scheduler can be expected, and how a mistake is expected."""

import pytest
from sweep_files import MINIMAL, error_of

from tune_tf.config import SweepConfig
from tune_tf.errors import InvalidSettingsError

SECTION = "must be a mapping"
BAD = {
    "limit": (
        {"scheduler": {"epochs": 9}},
        "scheduler.epochs",
        "is 9, but the sweep has epochs: 100; write `epochs: 9` outside of scheduler",
    ),
    "limit-of-ray": ({"scheduler": {"max_t": 9}}, "scheduler.max_t", "write `epochs: 9` outside"),
    "grace": (
        {"epochs": 3, "scheduler": {"name": "asha", "grace_period": 4}},
        "scheduler.grace_period",
        "is 4 but epochs is 3",
    ),
    "grace-of-fifo": (
        {"scheduler": {"grace_period": 4}},
        "scheduler.grace_period",
        "known keys are name, epochs",
    ),
    "reduction": (
        {"scheduler": {"name": "asha", "reduction_factor": 1}},
        "scheduler.reduction_factor",
        "must be more than 1",
    ),
    "scheduler": (
        {"scheduler": {"name": "HyperBandSheduler"}},
        "scheduler.name",
        "not 'HyperBandSheduler'; did you mean 'HyperBandScheduler'?",
    ),
    "scheduler-text": ({"scheduler": "asha"}, "scheduler", f"{SECTION} of settings, not 'asha'"),
    "scheduler-key": (
        {"scheduler": {"name": "pbt", "mutation": ["a"]}},
        "scheduler.mutation",
        "did you mean 'mutations'?; known keys are name, epochs, perturbation_interval",
    ),
    "quantile": (
        {"scheduler": {"name": "pbt", "quantile_fraction": 0.6}},
        "scheduler.quantile_fraction",
        "must be at most 0.5, not 0.6",
    ),
    "probability": (
        {"scheduler": {"name": "pbt", "resample_probability": 2}},
        "scheduler.resample_probability",
        "must be at most 1, not 2",
    ),
    "interval": (
        {"epochs": 3, "scheduler": {"name": "pb2", "perturbation_interval": 4}},
        "scheduler.perturbation_interval",
        "is 4 but epochs is 3: no trial would ever be changed",
    ),
    "factors": (
        {"scheduler": {"name": "pbt", "perturbation_factors": [1.2, 0]}},
        "scheduler.perturbation_factors.1",
        "must be more than 0, not 0",
    ),
    "mutations-text": (
        {"scheduler": {"name": "pbt", "mutations": "learning_rate"}},
        "scheduler.mutations",
        "must be a list, not 'learning_rate'",
    ),
    "mutations-none": (
        {"scheduler": {"name": "pbt", "mutations": []}},
        "scheduler.mutations",
        "must hold at least one, not []",
    ),
    "argument-of-ray": (
        {"scheduler": {"name": "MedianStoppingRule", "min_samples": 2}},
        "scheduler.min_samples",
        "did you mean 'min_samples_required'?; known keys are name, epochs, grace_period",
    ),
}


@pytest.mark.parametrize(("changes", "where", "text"), BAD.values(), ids=BAD)
def test_a_bad_setting_is_told_with_its_place_and_what_is_allowed(changes, where, text):
    error = error_of(changes)
    assert error.where == where
    assert text in error.what


def test_the_json_schema_knows_each_scheduler_and_any_class_of_ray():
    schema = SweepConfig.model_json_schema()
    kinds = {name: schema["$defs"][f"{name}Settings"] for name in ("Fifo", "Asha", "Pbt", "Ray")}
    assert "required" not in kinds["Fifo"]
    assert kinds["Asha"]["required"] == ["name"]
    assert "grace_period" not in kinds["Pbt"]["properties"]
    assert kinds["Ray"]["properties"]["name"]["pattern"] == "^[A-Z]"
    assert kinds["Ray"]["additionalProperties"]
    assert not kinds["Asha"]["additionalProperties"]


def test_all_faults_of_a_scheduler_are_told_at_once():
    scheduler = {"name": "pbt", "hard_stop": True, "sync": 1, "quantile_fraction": -1}
    with pytest.raises(InvalidSettingsError, match="4 errors") as caught:
        SweepConfig.from_dict({**MINIMAL, "epochs": 3, "scheduler": scheduler})
    assert {error.where for error in caught.value.details} == {
        "scheduler.hard_stop",
        "scheduler.sync",
        "scheduler.quantile_fraction",
        "scheduler.perturbation_interval",
    }


def sweep_of(**settings):
    from tune_tf.config import SweepConfig

    return SweepConfig.from_dict(
        {
            "name": "digits",
            "workload": "tune_tf.workloads.digits:DigitsMLP",
            "objective": {"metric": "val_accuracy", "mode": "max"},
            "space": {"width": {"int": [16, 64]}},
            "budget": {"num_samples": 4},
            "epochs": 9,
            "scheduler": {"name": "auto"},
            **settings,
        }
    )


TWO = [{"metric": "val_accuracy", "mode": "max"}, {"metric": "val_loss", "mode": "min"}]


@pytest.mark.parametrize(
    ("settings", "scheduler", "sampler"),
    [
        ({}, "freeze_thaw", "freeze_thaw"),
        ({"epochs": 1}, "fifo", "tpe"),
        ({"objective": TWO}, "asha", "tpe"),
        ({"parallelism": {"kind": "multi_worker", "num_workers": 2}}, "asha", "tpe"),
        ({"searcher": {"sampler": "random"}}, "freeze_thaw", "random"),
        ({"scheduler": {"name": "asha"}}, "asha", "tpe"),
        ({"scheduler": {"name": "freeze_thaw"}}, "freeze_thaw", "freeze_thaw"),
        ({"scheduler": {"name": "freeze_thaw"}, "objective": TWO}, "freeze_thaw", "tpe"),
    ],
)
def test_auto_chooses_by_objectives_epochs_and_processes(settings, scheduler, sampler):
    config = sweep_of(**settings)
    assert (config.scheduler.name, config.searcher.sampler) == (scheduler, sampler)
    assert config.scheduler.epochs == settings.get("epochs", 9)
    assert type(config).from_dict(config.to_dict()) == config


def test_the_proposals_of_a_scheduler_need_that_scheduler():
    with pytest.raises(InvalidSettingsError, match=r"searcher\.sampler: takes the proposals of"):
        sweep_of(searcher={"sampler": "freeze_thaw"}, scheduler={"name": "asha"})
