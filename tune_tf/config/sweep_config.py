"""Settings of a sweep."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from tune_tf.config.field_types import (
    ConstraintsSection,
    DataSection,
    KeepCheckpoints,
    NumBytes,
    ObjectiveSection,
    ParallelismSection,
    ResourcesSection,
    SpaceSection,
    SweepName,
    WorkloadReference,
)
from tune_tf.config.scheduler_settings import (
    AutoSettings,
    FifoSettings,
    PopulationSettings,
    SchedulerSection,
    SchedulerSettings,
)
from tune_tf.config.section_models import (
    BudgetSettings,
    ClusterSettings,
    MLflowSettings,
    SearcherSettings,
)
from tune_tf.config.settings import Settings
from tune_tf.config.stored_workload import STORED_FILE
from tune_tf.config.sweep_file import read_sweep_file
from tune_tf.errors import (
    ErrorDetail,
    InvalidSettingsError,
    adding_errors_to,
)
from tune_tf.objective import Objective
from tune_tf.parallelism import Asynchronous, Mirrored, Parallelism
from tune_tf.ranking import KeepBest
from tune_tf.resources import TrialResources
from tune_tf.result_keys import is_machine_metric
from tune_tf.secrets import register_secrets
from tune_tf.space.document import yaml_text
from tune_tf.space.parameter import smallest_number

SCHEMA_FILE: Final = "sweep.schema.json"
"""Name of the file with the JSON schema of sweep files."""

SCHEMA_COMMENT: Final = f"# yaml-language-server: $schema={SCHEMA_FILE}"
"""First line of a sweep file in the same folder, which editors look for."""

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_FILE: Final = "file://"


class SweepConfig(Settings):
    """Settings of a sweep, as in a sweep file.

    Args:
        name: Name of the sweep and of its folder. Example: ``digits-cnn``.
        workload: ``module:attribute`` or ``path/to/file.py:Class``; see :func:`import_workload`.
            In Python, also a :class:`~tune_tf.workload.Workload` class or instance. Example:
            ``my_model.py:MyModel``.
        data: Settings of the workload, which depend on it; relative paths start at the folder of
            this file. Example: ``{path: wine.csv, target: quality}``.
        objective: One metric with its mode, or several: the scheduler compares the first, which
            determines the best trial. Example: ``{metric: val_accuracy, mode: max}``.
        constraints: Bounds on reported metrics, by metric. Example: ``{params_count: <= 2e6}``.
        space: Parameter by name; a mapping without a kind is a group, a value a constant. Some
            workloads have one. Example: ``{learning_rate: {loguniform: [0.0001, 0.1]}}``.
        seed: Seed of data order, weights and sampler.
        reproducible: Whether the same settings give the same trials, decisions and results,
            whatever the number of workers, their load, failures and restarts.
        slots: Trials of a reproducible sweep that are decided on at once; four times as many as its
            workers keep these busy. Another number gives another sweep.
        searcher: Proposes configs. Example: ``{sampler: gp}``.
        epochs: Maximum epochs of a trial, whichever the scheduler is. Example: ``27``.
        scheduler: Pauses or stops trials early. Example: ``{name: auto}``.
        parallelism: How a trial uses its devices. Example: ``{num_replicas: 2}``.
        resources: Reservation of a trial; None to derive it from the parallelism. Example:
            ``{cpus: 2}``.
        budget: Number of trials and other limits. Example: ``{num_samples: 32}``.
        mlflow: MLflow store; None for no tracking. Example: ``{experiment_name: digits}``.
        tensorboard: Whether to write learning curves and hyperparameters into the folders of the
            trials, for ``tensorboard --logdir`` with the sweep's folder.
        storage_path: Parent of the sweep's folder, on a disk of all nodes; or a URI such as
            ``s3://bucket/sweeps``, for checkpoints: the sweep's folder is then in ``sweeps`` where
            the sweep was started. Example: ``/shared/sweeps``.
        cluster: Ray cluster; a local one by default. Example: ``{address: auto}``.
        max_concurrent_trials: Maximum concurrent trials; None for as many as fit the cluster.
            Example: ``4``.
        max_failures: Restarts of a failed trial.
        oom_retries: Restarts of a trial that ran out of memory, with lower demand or more memory;
            not counted as failures.
        reuse_actors: Whether a process runs one trial after the other.
        loop: ``graph`` for one graph call an epoch, ``fit`` for ``keras.Model.fit``.
        share_frozen: Whether the trials of a node compute the outputs of frozen layers at the
            beginning of their models, such as of a pretrained backbone, once; where it saves much.
        checkpoint_interval_s: Seconds between checkpoints of a running trial; 0 for one per
            epoch.
        keep: Epoch that a trial's value, model and rank come from: ``last``
            or ``best`` by the objective. Schedulers compare the values of each epoch in any case.
        keep_checkpoints: Number of the best ended trials whose checkpoints are kept, or ``all``.
            Those of trials that may continue are always kept.
        min_free_disk: Bytes; no new trial starts while less is free on the disks of the sweep's
            folder and Ray's temporary files. May be text with a unit, such as ``500 MiB``; 0 for no
            limit. Example: ``2 GB``.

    Raises:
        InvalidSettingsError: All errors, each with its dotted path.
    """

    name: SweepName
    workload: WorkloadReference
    data: DataSection | None = None
    objective: ObjectiveSection
    constraints: ConstraintsSection = ()
    space: SpaceSection
    seed: Annotated[int, Field(ge=0)] = 0
    reproducible: bool = False
    slots: Annotated[int, Field(ge=1)] = 16
    searcher: Annotated[SearcherSettings, BeforeValidator(SearcherSettings.from_dict)] = (
        SearcherSettings()
    )
    epochs: Annotated[int, Field(ge=1)] = 100
    scheduler: SchedulerSection = FifoSettings()
    parallelism: ParallelismSection = Mirrored()
    resources: ResourcesSection | None = None
    budget: Annotated[BudgetSettings, BeforeValidator(BudgetSettings.from_dict)]
    mlflow: Annotated[MLflowSettings, BeforeValidator(MLflowSettings.from_dict)] | None = (
        MLflowSettings()
    )
    tensorboard: bool = False
    storage_path: Annotated[
        str, BeforeValidator(lambda it: os.fspath(it) if isinstance(it, os.PathLike) else it)
    ] = "./sweeps"
    cluster: Annotated[ClusterSettings, BeforeValidator(ClusterSettings.from_dict)] = (
        ClusterSettings()
    )
    max_concurrent_trials: Annotated[int, Field(ge=1)] | None = None
    max_failures: Annotated[int, Field(ge=0)] = 0
    oom_retries: Annotated[int, Field(ge=0)] = 2
    reuse_actors: bool = True
    loop: Literal["graph", "fit"] = "graph"
    share_frozen: bool = True
    checkpoint_interval_s: Annotated[float, Field(ge=0)] = 10
    keep: Literal["best", "last"] = "last"
    keep_checkpoints: KeepCheckpoints = 5
    min_free_disk: NumBytes = 10**9

    # A validator sees the valid settings above its own, so conflicts between two settings are
    # reported along with the other errors.

    @field_validator("scheduler", mode="before")
    @classmethod
    def _limit_epochs(cls, scheduler: Any, info: ValidationInfo) -> Any:
        if isinstance(scheduler, SchedulerSettings):
            given = scheduler.model_fields_set | {"name"}
            scheduler = {name: getattr(scheduler, name) for name in given}
        epochs = info.data.get("epochs")
        if epochs is None or not isinstance(scheduler, Mapping):
            return scheduler
        for key in ("epochs", "max_t"):
            if (given := scheduler.get(key, epochs)) != epochs:
                text = f"is {given}, but the sweep has epochs: {epochs}; write `epochs: {given}`"
                raise InvalidSettingsError(ErrorDetail(key, f"{text} outside of scheduler"))
        return {**scheduler, "epochs": epochs}

    @model_validator(mode="after")
    def _choose_automatically(self) -> Self:
        if isinstance(self.scheduler, AutoSettings):
            in_processes = self.parallelism.in_processes
            settings = self.scheduler.choose(len(self.objectives), in_processes=in_processes)
            object.__setattr__(self, "scheduler", settings)
        freezes = self.scheduler.name == "freeze_thaw"
        if self.searcher.sampler == "auto":
            sampler = "freeze_thaw" if freezes and len(self.objectives) == 1 else "tpe"
            searcher = self.searcher.model_copy(update={"sampler": sampler})
            object.__setattr__(self, "searcher", searcher)
        elif self.searcher.sampler == "freeze_thaw" and not freezes:
            text = "takes the proposals of scheduler freeze_thaw: write `scheduler: {name: auto}`"
            raise InvalidSettingsError(ErrorDetail("searcher.sampler", text))
        return self

    @model_validator(mode="after")
    def _check_reproducible(self) -> Self:
        if self.reproducible and (errors := list(_irreproducible_settings(self))):
            raise InvalidSettingsError(errors)
        return self

    @model_validator(mode="after")
    def _register_secrets(self) -> Self:
        register_secrets(self.data or {})
        return self

    @field_validator("parallelism")
    @classmethod
    def _check_batch_size(cls, parallelism: Parallelism, info: ValidationInfo) -> Parallelism:
        space = info.data.get("space")
        batch_size = space.parameters.get("batch_size") if space else None
        smallest = smallest_number(batch_size) if batch_size else None
        if smallest is not None and smallest < parallelism.num_replicas:
            raise ValueError(
                f"has {parallelism.num_replicas} replicas but space.batch_size goes down to "
                f"{smallest:g}: a global batch needs at least one row per replica; raise the batch "
                "size or use fewer replicas"
            )
        return parallelism

    @field_validator("resources")
    @classmethod
    def _check_resources(cls, resources: TrialResources | None, info: ValidationInfo) -> Any:
        if resources is not None and "parallelism" in info.data:
            info.data["parallelism"].check(resources)
        return resources

    @field_validator("keep")
    @classmethod
    def _check_keep(cls, keep: str, info: ValidationInfo) -> str:
        scheduler = info.data.get("scheduler")
        if keep == "best" and isinstance(scheduler, PopulationSettings):
            raise ValueError(
                f"best does not work with scheduler {scheduler.name!r}, which changes the config "
                "and the weights of running trials, so that the best epoch may be that of another "
                "config: write `keep: last`"
            )
        return keep

    @field_validator("mlflow")
    @classmethod
    def _set_experiment_name(
        cls, mlflow: MLflowSettings | None, info: ValidationInfo
    ) -> MLflowSettings | None:
        if mlflow is not None and not mlflow.experiment_name:
            return mlflow.model_copy(update={"experiment_name": info.data.get("name", "")})
        return mlflow

    @field_validator("storage_path")
    @classmethod
    def _check_storage_path(cls, storage_path: str) -> str:
        if not storage_path:
            raise ValueError("is empty: write a folder, such as ./sweeps")
        if "://" in storage_path and "@" in urlsplit(storage_path).netloc:
            raise ValueError(
                "must not hold keys or passwords: set them in the environment, such as "
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            )
        return storage_path

    @property
    def workload_name(self) -> str:
        """Reference of the workload; its name alone if the sweep's folder stores the workload."""
        return self.workload.removeprefix(f"{STORED_FILE}:")

    @property
    def remote_storage(self) -> str | None:
        """``storage_path`` if it is a URI; None for a folder, also one written ``file://``."""
        uri = self.storage_path
        return uri if "://" in uri and not uri.startswith(_FILE) else None

    @property
    def sweeps_path(self) -> Path:
        """Absolute parent of the sweep's folder."""
        local = "sweeps" if self.remote_storage else self.storage_path.removeprefix(_FILE)
        return Path(local).absolute()

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """All objectives in the order given."""
        return self.objective if isinstance(self.objective, tuple) else (self.objective,)

    @property
    def leading_objective(self) -> Objective:
        """Objective that the scheduler compares and that determines the best trial."""
        return self.objectives[0]

    @property
    def keep_best(self) -> KeepBest | None:
        """Rule by which a trial keeps its best epoch; None for the last one."""
        if self.keep == "last":
            return None
        return KeepBest(self.leading_objective, self.constraints)

    @classmethod
    def from_yaml(cls, path: str | Path, overrides: Iterable[str] = ()) -> Self:
        """Read a sweep file; its workload is imported, which runs its code.

        A file without a ``space`` takes that of its workload, such as one of
        :func:`tune_tf.from_hypermodel`.

        Args:
            path: The file.
            overrides: Texts ``dotted.key=value`` that override the file; the value is YAML.
                Setting the kind of a parameter, as in ``space.filters.choice=[16,32]``, replaces
                its previous kind.

        Raises:
            InvalidSettingsError: All errors, each with its line in the file.
            WorkloadError: The workload, which is to provide the space, cannot be imported.
        """
        document, errors = read_sweep_file(Path(path), overrides)
        with adding_errors_to(errors):
            config = cls.from_dict(document.data)
        if errors:
            raise InvalidSettingsError(document.locate(errors), str(path))
        return config

    def to_dict(self) -> dict[str, Any]:
        """Return plain data with all defaults, as read by :meth:`from_dict`."""
        return self.model_dump()

    def to_yaml(self) -> str:
        """Return the text of a sweep file with all defaults."""
        return yaml_text(self.to_dict())


def schema_text() -> str:
    """Return the JSON schema of sweep files, with the descriptions of settings, for editors."""
    schema = {"$schema": _DIALECT, **SweepConfig.model_json_schema()}
    schema["required"].remove("space")  # the workload may provide it
    return json.dumps(schema, indent=2) + "\n"


def _irreproducible_settings(config: SweepConfig) -> Iterator[ErrorDetail]:
    """Yield an error for each setting by which a sweep depends on more than its settings."""
    for name in ("time_budget_s", "cpu_hours", "gpu_hours"):
        if getattr(config.budget, name) is not None:
            text = "depends on the speed of the machine, and reproducible is true: use epochs"
            yield ErrorDetail(f"budget.{name}", text)
    if isinstance(config.scheduler, PopulationSettings):
        text = f"{config.scheduler.name} goes on with the checkpoints of other trials"
        yield ErrorDetail("scheduler.name", f"{text}, and reproducible is true: use freeze_thaw")
    if isinstance(config.parallelism, Asynchronous):
        text = "asynchronous updates depend on the speed of workers, and reproducible is true"
        yield ErrorDetail("parallelism.kind", f"{text}: use mirrored")
    metrics = [
        *(each.metric for each in config.objectives),
        *(each.metric for each in config.constraints),
    ]
    for metric in filter(is_machine_metric, metrics):
        text = f"{metric} depends on the speed of the machine, and reproducible is true"
        yield ErrorDetail("objective", text)
