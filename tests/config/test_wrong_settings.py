"""What is wrong with a setting is told with its place, the value, the rule and what to write."""

import pytest
from sweep_files import MINIMAL, error_of

from tune_tf.config import MLflowSettings, SweepConfig
from tune_tf.errors import InvalidSettingsError

SECTION = "must be a mapping of settings"
OBJECTIVE = {"metric": "a", "mode": "min"}


def within(section, **settings):
    needed = {"budget": {"num_samples": 1}, "objective": OBJECTIVE}.get(section, {})
    return {section: {**needed, **settings}}


WRONG = [
    *(({"name": name}, "name", f"not {name!r}") for name in ("my sweep", ".hidden", "a\n", 3)),
    ({"workload": "digits"}, "workload", "module:attribute or path/to/file.py:Class"),
    ({"workload": "a:B()"}, "workload", "not 'a:B()'"),
    ({"objective": "loss"}, "objective", "write `{metric: loss}`"),
    ({"objective": []}, "objective", "is an empty list"),
    ({"objective": [{"metric": "a"}]}, "objective.0.mode", "is missing: give min or max"),
    (
        {"objective": [OBJECTIVE, OBJECTIVE]},
        "objective",
        "a metric twice: leave one of a, a out",
    ),
    (within("objective", metrc=1), "objective.metrc", "did you mean 'metric'?"),
    (within("objective", metric=""), "objective.metric", "must not be empty"),
    (within("objective", mode="maximize"), "objective.mode", "must be 'min' or 'max', not"),
    ({"constraints": {"a": "< 3"}}, "constraints.a", "'<= 2e6' or '>= 0.9'"),
    ({"constraints": ["a"]}, "constraints", "must be a mapping of metrics to bounds, like"),
    ({"space": {"a": {"int": [2, 1]}}}, "space.a", "high 1 is below low 2"),
    ({"space": None}, "space", "must be a mapping like {learning_rate: "),
    ({"space": {}}, "space", "has no parameter: say what to search, {learning_rate"),
    ({"data": ["a"]}, "data", "must be a mapping of the workload's settings"),
    ({"data": {3: 1}}, "data", "must be a mapping of the workload's settings by name, like"),
    ({"seed": "7"}, "seed", "must be an integer, not '7': write it without quotes"),
    ({"seed": True}, "seed", "must be an integer, not True"),
    ({"seed": -1}, "seed", "must be at least 0, not -1"),
    ({"searcher": "tpe"}, "searcher", f"{SECTION}, not 'tpe': write `{{sampler: tpe}}`"),
    (within("searcher", sampler="tp"), "searcher.sampler", "did you mean 'tpe'?"),
    (within("searcher", name="random"), "searcher.name", "known keys are sampler"),
    (
        within("searcher", points_to_evaluate=[3]),
        "searcher.points_to_evaluate",
        "list of configs like",
    ),
    ({"searcher": {3: 1}}, "searcher.3", "unknown key"),
    ({"scheduler": "asha"}, "scheduler", "write `{name: asha}`"),
    ({"parallelism": 2}, "parallelism", "write `{num_replicas: 2}`"),
    ({"parallelism": "folds"}, "parallelism", "write `{kind: folds}`"),
    (within("parallelism", kind="miror"), "parallelism.kind", "one of 'mirrored', 'multi_worker'"),
    (within("parallelism", num_replicas=0), "parallelism.num_replicas", "at least 1, not 0"),
    (within("parallelism", num_replicas=3), "parallelism", "space.batch_size goes down to 2"),
    (within("parallelism", kind="multi_worker", num_workers=3), "parallelism", "has 3 replicas"),
    (
        within("parallelism", kind="multi_worker", num_replicas=2),
        "parallelism.num_replicas",
        "unknown key; did you mean 'num_workers'?",
    ),
    ({"resources": 2}, "resources", "not 2; they are cpus, gpus, accelerator_type, custom"),
    (within("resources", cpus=0), "resources.cpus", "must be at least 1, not 0"),
    (within("resources", accelerator_type="a:b"), "resources.accelerator_type", "like H100, not"),
    (within("resources", gpu=1), "resources.gpu", "did you mean 'gpus'?"),
    (within("resources", gpus=2), "resources", "gpus is 2 but the trial has 1 replica"),
    ({"budget": None}, "budget", f"{SECTION}, not nothing (null); they are num_samples"),
    ({"budget": 10}, "budget", "write `{num_samples: 10}`"),
    ({"budget": {}}, "budget.num_samples", "is missing: say how many trials"),
    (within("budget", time_budget_s=0), "budget.time_budget_s", "must be more than 0"),
    (within("budget", target=float("inf")), "budget.target", "must be a finite number, not inf"),
    ({"mlflow": "sqlite:///x.db"}, "mlflow", "write `{tracking_uri: sqlite:///x.db}`"),
    ({"mlflow": False}, "mlflow", "write `null` for none"),
    (within("mlflow", uri="x"), "mlflow.uri", "known keys are tracking_uri, experiment_name"),
    (within("mlflow", tracking_uri=3), "mlflow.tracking_uri", "must be text, not 3: put it in q"),
    (
        within("mlflow", log_best_model=False, register_best="digits"),
        "mlflow.register_best",
        "log_best_model is false",
    ),
    *(
        (within("mlflow", best_alias=alias), "mlflow.best_alias", "use an alias such as champion")
        for alias in ("", "latest", "Latest", "v3", "V12", "a b", "a/b", "x" * 256)
    ),
    *(
        (within("cluster", address=address), "cluster.address", "must be auto or host:port")
        for address in (" ", "head", "ray://head:10001", ":6379", "head:ray")
    ),
    ({"storage_path": None}, "storage_path", "must be text, not nothing"),
    ({"storage_path": "s3://key:secret@host/a"}, "storage_path", "must not hold keys or passwords"),
    (
        {"mlflow": {"tracking_uri": "http://ann:pw@host:5000"}},
        "mlflow.tracking_uri",
        "must not hold a password: write",
    ),
    ({"searcher": {"storage": "mysql://a:b@h/d"}}, "searcher.storage", "reference such as ${DB_PA"),
    ({"max_concurrent_trials": 0}, "max_concurrent_trials", "at least 1, not 0"),
    ({"reuse_actors": "true"}, "reuse_actors", "true or false, not 'true'"),
    ({"loop": "grpah"}, "loop", "must be 'graph' or 'fit', not 'grpah'; did you mean"),
    ({"keep": "first"}, "keep", "must be 'best' or 'last', not 'first'"),
    *(
        ({"keep": "best", "scheduler": scheduler}, "keep", f"scheduler {name!r}")
        for name, scheduler in {"pbt": {"name": "pbt"}, "pb2": {"name": "pb2"}}.items()
    ),
    *(
        ({"keep_checkpoints": number}, "keep_checkpoints", "at least 1, or all")
        for number in (0, -2, True, "best", 2.0, None)
    ),
    *(
        ({"min_free_disk": size}, "min_free_disk", "such as 2 GB")
        for size in (-1, True, 1.5, "2 pieces", "much", "", None, "-1")
    ),
    ({"schedular": {}}, "schedular", "unknown key; did you mean 'scheduler'?; known keys are"),
]


@pytest.mark.parametrize(("changes", "where", "text"), WRONG)
def test_a_wrong_setting_is_told_with_its_place_and_what_is_allowed(changes, where, text):
    error = error_of(changes)
    assert error.where == where
    assert text in error.what


def test_an_empty_mapping_lacks_what_has_no_default():
    with pytest.raises(InvalidSettingsError, match="5 errors") as caught:
        SweepConfig.from_dict({})
    missing = [error.where for error in caught.value.details]
    assert missing == ["name", "workload", "objective", "space", "budget"]


MODEL_NAMES = ["digits", "digits cnn", "Ziffern-Größe", "a.b", "x" * 255]
WRONG_MODEL_NAMES = ["", " ", "a/b", "a:b", "..", ".", "x" * 256]


@pytest.mark.parametrize("name", [*MODEL_NAMES, *WRONG_MODEL_NAMES])
def test_a_model_name_is_judged_before_the_sweep_as_mlflow_judges_it(name):
    from mlflow.exceptions import MlflowException
    from mlflow.utils.validation import _validate_model_name

    if name in MODEL_NAMES:
        assert MLflowSettings(register_best=name, best_alias=None).register_best == name
        _validate_model_name(name)
        return
    error = error_of({"mlflow": {"register_best": name}})
    assert error.where == "mlflow.register_best"
    assert "must be a name of 1 to 255" in error.what
    if len(name) <= 255:  # its database refuses longer ones later
        with pytest.raises(MlflowException):
            _validate_model_name(name)


@pytest.mark.parametrize(
    ("given", "num_bytes"),
    [(0, 0), (4096, 4096), ("2 GB", 2 * 10**9), ("1.5gb", 15 * 10**8), ("512 MiB", 2**29)],
)
def test_a_size_is_a_number_of_bytes_or_text_with_a_unit(given, num_bytes):
    config = SweepConfig.from_dict(MINIMAL | {"min_free_disk": given, "keep_checkpoints": "all"})
    assert config.min_free_disk == num_bytes
    assert SweepConfig.from_dict(config.to_dict()) == config


def test_the_best_epoch_is_that_of_the_leading_objective_within_the_constraints():
    objectives = [{"metric": "b", "mode": "max"}, {"metric": "a", "mode": "min"}]
    changes = {"objective": objectives, "constraints": {"loss": "<= 2"}}
    assert SweepConfig.from_dict(MINIMAL | changes).keep_best is None
    sweep = SweepConfig.from_dict(MINIMAL | changes | {"keep": "best"})
    assert sweep.keep_best.objective.metric == "b"
    assert sweep.keep_best.constraints == sweep.constraints
