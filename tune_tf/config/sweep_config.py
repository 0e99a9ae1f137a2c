"""All settings of a sweep."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from tune_tf.config.budget_settings import BudgetSettings
from tune_tf.config.cluster_settings import ClusterSettings
from tune_tf.config.disk_settings import KeepCheckpoints, NumBytes
from tune_tf.config.json_schema import for_editors
from tune_tf.config.parallelism_section import ParallelismSection
from tune_tf.config.scheduler_settings import FifoSettings, SchedulerSection
from tune_tf.config.searcher_settings import SearcherSettings
from tune_tf.config.sections import (
    ConstraintsSection,
    DataSection,
    ObjectiveSection,
    ResourcesSection,
    SpaceSection,
    SweepName,
    ValidationSection,
    WorkloadReference,
)
from tune_tf.config.settings import (
    MLflowSettings,
    Settings,
)
from tune_tf.config.workload_reference import import_workload
from tune_tf.config.yaml_text import yaml_text
from tune_tf.errors import ErrorDetail, InvalidSettingsError, WorkloadError, near_ones, one_of
from tune_tf.objective import Objective
from tune_tf.parallelism import Mirrored, MultiWorker, Parallelism
from tune_tf.resources import TrialResources
from tune_tf.space.declaration import KINDS
from tune_tf.space.document import OVERRIDE, YamlDocument
from tune_tf.validation import Validation

_FILE: Final = "file://"


class SweepConfig(Settings):
    """All settings of a sweep, as a sweep file holds them.

    Args:
        name: Name of the sweep, and of its folder.
        workload: ``module:attribute`` or ``path/to/file.py:Class``; see :func:`import_workload`.
        data: Settings that the workload is made with; None for one that needs none.
        objective: What is optimised: one metric with its mode, or several.
        leading_metric: Which of several objectives the scheduler compares, and which tells the best
            trial; None for the first.
        constraints: Bounds on reported metrics, by metric, like ``"<= 2e6"``.
        space: What is searched.
        seed: Seed of data order, weights and sampler.
        searcher: Who proposes configs.
        scheduler: Who stops trials.
        parallelism: How a trial is spread over devices.
        resources: What a trial reserves; None to derive it from the parallelism.
        budget: Trials and time.
        mlflow: Where trials are recorded; None for nowhere.
        storage_path: Folder under which the sweep's folder lies, which all nodes see; or a URI that
            pyarrow can reach, such as ``s3://bucket/sweeps``, for checkpoints and Ray Tune's state:
            the sweep's folder then lies under ``sweeps`` where the sweep was started.
        cluster: On which Ray cluster it runs.
        max_concurrent_trials: Trials at a time; None for what the cluster can hold.
        max_failures: Times that a failed trial is started again.
        oom_retries: Times that a trial which ran out of memory is started again so that it needs
            less or has more; they are not counted as failures.
        reuse_actors: Whether a process runs one trial after the other.
        loop: ``graph`` for one graph call an epoch, ``fit`` for ``keras.Model.fit``.
        validation: When validation rows are evaluated.
        checkpoint_interval_s: Seconds between two checkpoints of a running trial; 0 for one each
            iteration.
        keep_checkpoints: How many of the best trials that have ended keep their checkpoints, or
            ``all``. Those of trials that may go on are kept anyway.
        min_free_disk: Bytes; no new trial starts while less is free where the sweep's folder or
            Ray's temporary files lie. 0 for no limit.

    Raises:
        InvalidSettingsError: With all faults, each placed by its dotted path.
    """

    name: SweepName
    workload: WorkloadReference
    data: DataSection = None
    objective: ObjectiveSection
    leading_metric: str | None = None
    constraints: ConstraintsSection = ()
    space: SpaceSection
    seed: Annotated[int, Field(ge=0)] = 0
    searcher: Annotated[SearcherSettings, BeforeValidator(SearcherSettings.section)] = (
        SearcherSettings()
    )
    scheduler: SchedulerSection = FifoSettings()
    parallelism: ParallelismSection = Mirrored()
    resources: ResourcesSection = None
    budget: Annotated[BudgetSettings, BeforeValidator(BudgetSettings.section)]
    mlflow: Annotated[
        MLflowSettings | None,
        BeforeValidator(lambda it: None if it is None else MLflowSettings.section(it)),
    ] = MLflowSettings()
    storage_path: Annotated[
        str, BeforeValidator(lambda it: os.fspath(it) if isinstance(it, os.PathLike) else it)
    ] = "./sweeps"
    cluster: Annotated[ClusterSettings, BeforeValidator(ClusterSettings.section)] = (
        ClusterSettings()
    )
    max_concurrent_trials: Annotated[int, Field(ge=1)] | None = None
    max_failures: Annotated[int, Field(ge=0)] = 0
    oom_retries: Annotated[int, Field(ge=0)] = 2
    reuse_actors: bool = True
    loop: Literal["graph", "fit"] = "graph"
    validation: ValidationSection = Validation()
    checkpoint_interval_s: Annotated[float, Field(ge=0)] = 10
    keep_checkpoints: KeepCheckpoints = 5
    min_free_disk: NumBytes = 10**9

    # A validator sees the settings above its own that are right, so that what is wrong between
    # two settings is told along with the rest.

    @field_validator("leading_metric")
    @classmethod
    def _one_of_the_objectives(cls, metric: str | None, info: ValidationInfo) -> str | None:
        metrics = [each.metric for each in _as_tuple(info.data.get("objective", ()))]
        if metric is not None and metrics and metric not in metrics:
            raise ValueError(
                f"must be {one_of(metrics)}, not {metric!r}{near_ones(metric, metrics)}"
            )
        return metric

    @field_validator("searcher")
    @classmethod
    def _seeded(cls, searcher: SearcherSettings, info: ValidationInfo) -> SearcherSettings:
        if searcher.seed is None and "seed" in info.data:
            return searcher.model_copy(update={"seed": info.data["seed"]})
        return searcher

    @field_validator("parallelism")
    @classmethod
    def _rows_for_each_replica(cls, parallelism: Parallelism, info: ValidationInfo) -> Parallelism:
        space = info.data.get("space")
        batch_size = space.parameters.get("batch_size") if space else None
        smallest = batch_size.smallest if batch_size else None
        if smallest is not None and smallest < parallelism.num_replicas:
            num, alone = parallelism.num_replicas, not isinstance(parallelism, MultiWorker)
            text = (
                f"{f'is {num}' if alone else f'makes {num} replicas'} but space.batch_size goes "
                f"down to {smallest:g}: a global batch has at least one row for each replica; "
                "raise the batch size or use fewer replicas"
            )
            raise InvalidSettingsError(
                [ErrorDetail("num_replicas" if alone else "num_workers", text)]
            )
        return parallelism

    @field_validator("resources")
    @classmethod
    def _usable(cls, resources: TrialResources | None, info: ValidationInfo) -> Any:
        if resources is not None and "parallelism" in info.data:
            info.data["parallelism"].check(resources)
        return resources

    @field_validator("mlflow")
    @classmethod
    def _named(cls, mlflow: MLflowSettings | None, info: ValidationInfo) -> MLflowSettings | None:
        if mlflow is not None and not mlflow.experiment_name:
            return mlflow.model_copy(update={"experiment_name": info.data.get("name", "")})
        return mlflow

    @field_validator("storage_path")
    @classmethod
    def _without_password(cls, storage_path: str) -> str:
        if "://" in storage_path and "@" in urlsplit(storage_path).netloc:
            raise ValueError(
                "must not hold keys or passwords: give them in the environment, such as "
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            )
        return storage_path

    @property
    def remote_storage(self) -> str | None:
        """The URI that ``storage_path`` is; None for a folder, also one written ``file://``."""
        uri = self.storage_path
        return uri if "://" in uri and not uri.startswith(_FILE) else None

    @property
    def sweeps_path(self) -> Path:
        """The folder under which the sweep's own folder lies, absolute."""
        local = "sweeps" if self.remote_storage else self.storage_path.removeprefix(_FILE)
        return Path(local).absolute()

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """All objectives: the leading one, then the others in the order given."""
        given = _as_tuple(self.objective)
        leading = [each for each in given if each.metric == self.leading_metric]
        return (*leading, *(each for each in given if each not in leading))

    @property
    def leading_objective(self) -> Objective:
        """The objective that the scheduler compares and that tells the best trial."""
        return self.objectives[0]

    @classmethod
    def from_yaml(
        cls, path: str | Path, overrides: Iterable[str] = (), *, trusted: bool = True
    ) -> Self:
        """Return the settings of a sweep file.

        A file without a ``space`` takes the one of its workload, if that has one, as those of
        :func:`tune_tf.from_hypermodel` do.

        Args:
            path: The file.
            overrides: Texts ``dotted.key=value`` that win over the file; the value is YAML.
                Setting the kind of a parameter, as in ``space.filters.choice=[16,32]``, replaces
                the kind it had.
            trusted: Whether the workload that the file names may be imported, which runs its code:
                to take its space, and to check ``data``.

        Raises:
            InvalidSettingsError: With all faults, each with its line in the file.
            WorkloadError: The space is to come from the workload, which cannot be imported.
        """
        original = YamlDocument.read(Path(path))
        base_dir = Path(path).absolute().parent
        if trusted:
            original = replace(original, data=_with_space(original.data, base_dir))
        document = original.overriding(overrides, exclusive=KINDS)
        faults = [
            *document.faults,
            *_new_parameters(document, original),
            *(_data_faults(document.data, base_dir) if trusted else ()),
        ]
        config = None
        try:
            config = cls.from_dict(document.data)
        except InvalidSettingsError as error:
            faults += error.faults
        if faults or config is None:
            placed = document.placed(faults)
            only_overrides = all(fault.where.startswith(OVERRIDE) for fault in placed)
            raise InvalidSettingsError(placed, OVERRIDE if only_overrides else str(path))
        return config

    def to_dict(self) -> dict[str, Any]:
        """Return plain data with every default written out, as :meth:`from_dict` reads it."""
        return self.model_dump()

    def to_yaml(self) -> str:
        """Return the text of a sweep file with every default written out."""
        return yaml_text(self.to_dict())

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """Return the JSON schema of a sweep file, for editors."""
        schema = for_editors(cls.model_json_schema())
        # A file may leave it to the workload, which an editor does not see.
        schema["required"].remove("space")
        return schema


def _with_space(settings: Mapping[str, Any], base_dir: Path) -> dict[str, Any]:
    """Return a sweep file's settings with the workload's own space where the file has none."""
    if "space" in settings or not _names_a_workload(settings):
        return dict(settings)
    try:
        workload = import_workload(settings["workload"], base_dir, _given(settings))
    except InvalidSettingsError:
        return dict(settings)  # it is told with the other faults
    space = getattr(workload, "space", None)
    return dict(settings) if space is None else {**settings, "space": space.to_dict()}


def _data_faults(settings: Mapping[str, Any], base_dir: Path) -> list[ErrorDetail]:
    """Return what the workload finds wrong with its own settings."""
    data = _given(settings)
    if data is None or not _names_a_workload(settings):
        return []
    try:
        import_workload(settings["workload"], base_dir, data)
    except InvalidSettingsError as error:
        return list(error.faults)
    except WorkloadError:
        return []  # a sweep that has ended is read where its workload may be no more
    return []


def _names_a_workload(settings: Mapping[str, Any]) -> bool:
    return isinstance(settings.get("workload"), str) and ":" in settings["workload"]


def _given(settings: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the workload's own settings; None where there are none that it could look at."""
    data = settings.get("data")
    plain = isinstance(data, Mapping) and all(isinstance(key, str) for key in data)
    return data if plain else None


def _as_tuple(objective: Objective | tuple[Objective, ...]) -> tuple[Objective, ...]:
    return objective if isinstance(objective, tuple) else (objective,)


def _new_parameters(document: YamlDocument, original: YamlDocument) -> list[ErrorDetail]:
    """Return a fault for each override that names a parameter that the file does not have."""
    faults = []
    space = original.data.get("space")
    known = list(space) if isinstance(space, dict) else []
    for key, override in document.overridden.items():
        names = key.split(".")
        if len(names) > 1 and names[0] == "space" and names[1] not in known:
            text = (
                f"the space has no {names[1]!r}{near_ones(names[1], known)}; there are "
                f"{', '.join(known)}"
            )
            faults.append(ErrorDetail(f"{OVERRIDE} {override}", text))
    return faults
