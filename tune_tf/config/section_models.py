"""Sections of a sweep file that are plain settings: budget, cluster, searcher and MLflow."""

import re
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from tune_tf.config.settings import Settings, with_rule
from tune_tf.errors import ErrorDetail, InvalidSettingsError, did_you_mean, one_of
from tune_tf.secrets import mask_secrets, refuse_password
from tune_tf.validation import short_repr, unknown_key_error

_Uri = Annotated[str, AfterValidator(refuse_password)]


class BudgetSettings(Settings):
    """Budget and stopping criteria of a sweep.

    The sweep ends at the first limit that it reaches. Trials running then are stopped after their
    current epoch, keep their checkpoints and end as ``out_of_budget``.

    Args:
        num_samples: Number of trials. Example: ``32``.
        time_budget_s: Seconds until the sweep ends, not counting those between an interruption and
            the resume; None for no limit. Example: ``3600``.
        epochs: Epochs of all trials together, retries and resumes included; None for no limit.
            Example: ``500``.
        cpu_hours: Hours of reserved CPUs, of all trials together; None for no limit. Example:
            ``8``.
        gpu_hours: Hours of reserved GPUs, of all trials together; None for no limit. Example:
            ``1.5``.
        target: Value of the leading metric to reach: the trial that reports it or a better one,
            within the constraints, completes, and the sweep ends; None for none. Example: ``0.99``.
        patience: Trials in a row that may end without an improvement of the best; None for any
            number. Example: ``20``.
    """

    main_setting: ClassVar[str] = "num_samples"

    num_samples: Annotated[int, Field(ge=1)]
    time_budget_s: Annotated[float, Field(gt=0)] | None = None
    epochs: Annotated[int, Field(ge=1)] | None = None
    cpu_hours: Annotated[float, Field(gt=0)] | None = None
    gpu_hours: Annotated[float, Field(gt=0)] | None = None
    target: float | None = None
    patience: Annotated[int, Field(ge=1)] | None = None


def _check_runtime_env(environment: dict[str, Any]) -> dict[str, Any]:
    from ray.runtime_env import RuntimeEnv  # late: it takes a second

    known = sorted(each for each in RuntimeEnv.known_fields if not each.startswith("_"))
    errors = [unknown_key_error(key, known) for key in environment if key not in known]
    variables = environment.get("env_vars", {})
    if not isinstance(variables, dict):
        text = f"must be a mapping of names to text, not {short_repr(variables)}"
        raise InvalidSettingsError([*errors, ErrorDetail("env_vars", text)])
    for name, value in variables.items():
        where = f"env_vars.{name}"
        if not isinstance(name, str) or not isinstance(value, str):
            text = f"must be text, not {short_repr(value)}: put it in quotes"
            errors.append(ErrorDetail(where, text))
        elif mask_secrets(f"{name}={value}") != f"{name}={value}":
            text = f"looks like a secret: write ${{{name}}} and set it where the sweep is started"
            errors.append(ErrorDetail(where, text))
    if errors:
        raise InvalidSettingsError(errors)
    return environment


_Address = Annotated[
    str,
    Field(pattern=r"^(auto|local|[^/]+:[0-9]+)$"),
    with_rule("must be auto or host:port (from outside of a cluster, use `ray job submit`)"),
]


class ClusterSettings(Settings):
    """Ray cluster of a sweep.

    Args:
        address: ``auto`` for the cluster that this machine belongs to, or ``host:port`` of a
            cluster's GCS; None for a local cluster. The environment variable ``RAY_ADDRESS`` takes
            precedence. Example: ``auto``.
        runtime_env: Ray's ``runtime_env`` of the trials' processes: ``working_dir``, ``pip``,
            ``env_vars`` and so on. Paths are relative to the sweep file; values of ``env_vars`` may
            contain references ``${NAME}``. Example: ``{pip: [scikit-learn]}``.
    """

    address: _Address | None = None
    runtime_env: Annotated[dict[str, Any], AfterValidator(_check_runtime_env)] | None = None


_SAMPLERS = ("auto", "tpe", "random", "freeze_thaw", "cmaes", "gp", "nsga2", "nsga3", "grid")
_SAMPLER_FORMS: Any = {"anyOf": [{"enum": [*_SAMPLERS]}, {"type": "string", "pattern": "^[A-Z]"}]}


def _check_sampler(name: str) -> str:
    """Refuse a name that is none of these; classes of Optuna are looked up where it is loaded."""
    if name not in _SAMPLERS and not name[:1].isupper():
        raise ValueError(
            f"must be {one_of(_SAMPLERS)}, or a class of Optuna such as QMCSampler, not {name!r}"
            f"{did_you_mean(name, _SAMPLERS)}"
        )
    return name


class SearcherSettings(Settings):
    """The searcher, which proposes configs.

    Args:
        sampler: Optuna's sampler, by its name here or by that of its class; ``auto`` is
            ``freeze_thaw`` with the scheduler of that name, else ``tpe``. ``tpe`` learns from all
            results, running trials included; ``random`` does not learn; ``freeze_thaw`` takes the
            proposals of the scheduler of that name. Example: ``tpe``.
        arguments: Arguments of the sampler's class. Example: ``{n_startup_trials: 5}``.
        storage: Optuna storage that the study is copied to for others to read: the URL of a
            database, or a journal file. Example: ``postgresql+psycopg://user@host/optuna``.
        study_name: Name of the study in it; None for the sweep's id. Example: ``digits``.
        points_to_evaluate: Configs to evaluate first. Example: ``[{learning_rate: 0.01}]``.
        warm_start_from: Earlier results to learn from: a sweep's folder, a study's database URL or
            journal file, or ``mlflow:<experiment name>``. Example: ``mlflow:digits``.
    """

    main_setting: ClassVar[str] = "sampler"

    sampler: Annotated[
        str, AfterValidator(_check_sampler), Field(json_schema_extra=_SAMPLER_FORMS)
    ] = "auto"
    arguments: Annotated[dict[str, Any], with_rule("must be a mapping of arguments")] = Field({})
    storage: _Uri | None = None
    study_name: str | None = None
    points_to_evaluate: Annotated[
        list[dict[str, Any]], with_rule("must be a list of configs like {learning_rate: 0.1}")
    ] = Field([])
    warm_start_from: _Uri | None = None


_ModelName = Annotated[
    str,
    Field(pattern=r"^[^/:.\s][^/:]{0,254}$"),
    with_rule(
        "must be a name of 1 to 255 characters without '/' and ':', as MLflow requires, that does "
        "not begin with '.' or a space"
    ),
]


def _check_alias(alias: str) -> str:
    """Refuse an alias that MLflow would refuse: ``latest`` and ``v1`` are reserved."""
    reserved = alias.lower() == "latest" or re.fullmatch(r"[vV]\d+", alias)
    if reserved or not re.fullmatch(r"[\w\-]+", alias) or len(alias) > 255:
        raise ValueError(
            "must be letters, digits, '_' and '-', and neither 'latest' nor a version number such "
            f"as 'v1', which MLflow reserves, not {short_repr(alias)}: use an alias "
            "such as champion"
        )
    return alias


class MLflowSettings(Settings):
    """MLflow store for trials and the best model.

    Args:
        tracking_uri: MLflow's database, folder or server. Example: ``http://host:5000``.
        experiment_name: MLflow experiment; the sweep's name if empty. Example: ``digits``.
        system_metrics: Whether trials report the load of their machine and process with their
            metrics, at most once a second.
        log_best_model: Whether the best trial's model is logged once the sweep has ended, and
            evaluated on the test rows, if any.
        register_best: Registered model that gets the best model as a version; None for none.
            Example: ``digits-cnn``.
        best_alias: Alias of this version, taken from any other version; None for none.
            Example: ``staging``.
    """

    main_setting: ClassVar[str] = "tracking_uri"

    tracking_uri: _Uri = "sqlite:///mlflow.db"
    experiment_name: str = ""
    system_metrics: bool = True
    log_best_model: bool = True
    register_best: _ModelName | None = None
    best_alias: Annotated[str, AfterValidator(_check_alias)] | None = "champion"

    @field_validator("register_best")
    @classmethod
    def _check_register_best(cls, name: str | None, info: ValidationInfo) -> str | None:
        if name is not None and info.data.get("log_best_model") is False:
            raise ValueError(
                f"is {name!r}, but log_best_model is false: a version is made from the logged "
                "model; leave one of the two out"
            )
        return name
