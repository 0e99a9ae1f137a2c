"""An MLflow server in memory, which can refuse, be slow, or fail after it has done the work.

It has the calls of ``MlflowClient`` that a sweep makes, with what MLflow 3 answers to them: a
metric point that comes twice is one, a parameter cannot change, a deleted run is not written to.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlflow.entities import (
    DatasetInput,
    Experiment,
    ExperimentTag,
    Metric,
    Param,
    Run,
    RunData,
    RunInfo,
    RunInputs,
    RunTag,
)
from mlflow.exceptions import MlflowException, RestException
from mlflow.store.entities import PagedList
from turns import Turns

_TAG = re.compile(r"tags\.`([^`]+)` = '([^']*)'")


@dataclass
class StoredRun:
    """A run as the store keeps it."""

    run_id: str
    experiment_id: str
    start_time: int
    name: str
    status: str = "RUNNING"
    end_time: int | None = None
    deleted: bool = False
    tags: dict[str, str] = field(default_factory=dict)
    params: dict[str, str] = field(default_factory=dict)
    points: dict[tuple[str, int, int, str], float] = field(default_factory=dict)
    artifacts: dict[str, str] = field(default_factory=dict)
    inputs: list[DatasetInput] = field(default_factory=list)

    def history(self, key: str) -> list[Metric]:
        """Return the points of a metric."""
        return [
            Metric(name, value, ms, step)
            for (name, step, ms, _), value in self.points.items()
            if name == key
        ]

    def as_run(self) -> Run:
        """Return it as MLflow's client does."""
        latest: dict[str, tuple[int, int, float]] = {}
        for (key, step, ms, _), value in self.points.items():
            latest[key] = max(latest.get(key, (-1, 0, 0.0)), (step, ms, value))
        info = RunInfo(
            self.run_id,
            self.experiment_id,
            "me",
            self.status,
            self.start_time,
            self.end_time,
            "deleted" if self.deleted else "active",
            run_name=self.name,
        )
        data = RunData(
            [Metric(key, value, ms, step) for key, (step, ms, value) in latest.items()],
            [Param(*item) for item in self.params.items()],
            [RunTag(*item) for item in self.tags.items()],
        )
        return Run(info, data, RunInputs(self.inputs))


@dataclass
class Weather:
    """How the store fails.

    Args:
        refuses: Probability that a call fails before anything is done.
        forgets: Probability that it fails after all is done.
        parts: Probability that a batch fails after a part of it is done.
        down: Virtual times, in seconds, between which no call comes through.
        slow_s: How long a call takes that is answered too late.
    """

    refuses: float = 0.0
    forgets: float = 0.0
    parts: float = 0.0
    down: tuple[float, float] = (0.0, 0.0)
    slow_s: float = 5.0


class Store:
    """What the server keeps.

    Args:
        turns: The clock; draws faults.
    """

    def __init__(self, turns: Turns) -> None:
        self.weather = Weather()
        self.experiments: dict[str, str] = {}
        self.experiment_tags: dict[str, list[ExperimentTag]] = {}
        self.runs: dict[str, StoredRun] = {}
        self.num_failures = 0
        self._turns = turns

    def do(self, name: str, work: Callable[[], Any], part: Callable[[], Any] | None = None) -> Any:
        """Answer a call that writes."""
        turns, weather = self._turns, self.weather
        turns.point(f"mlflow {name}")
        if weather.down[0] <= turns.now < weather.down[1] or turns.rng.random() < weather.refuses:
            self._fail("it is away")
        if part is not None and turns.rng.random() < weather.parts:
            part()
            turns.trace.append("part")
            self._fail("it broke off in the middle")
        done = work()
        if turns.rng.random() < weather.forgets:
            turns.trace.append("forgot")
            self._fail("no answer in time")
        turns.point(f"mlflow {name} done")
        return done

    def ask(self, work: Callable[[], Any]) -> Any:
        """Answer a call that reads."""
        return self.do("read", work)

    def active(self, run_id: str) -> StoredRun:
        """Return a run that may be written to."""
        run = self.runs.get(run_id)
        if run is None:
            raise _refusal("RESOURCE_DOES_NOT_EXIST", f"no run {run_id}")
        if run.deleted:
            raise _refusal("INVALID_PARAMETER_VALUE", f"the run {run_id} must be active")
        return run

    def _fail(self, why: str) -> None:
        self.num_failures += 1
        self._turns.trace.append(why)
        if why == "no answer in time":
            self._turns.wait(until=self._turns.now + self.weather.slow_s)
        raise MlflowException(f"API request failed: {why}")


def _refusal(code: str, text: str) -> RestException:
    return RestException({"error_code": code, "message": text})


class Client:
    """As ``MlflowClient``, as far as a sweep uses it.

    Args:
        store: Where it writes to.
        turns: The clock.
    """

    def __init__(self, store: Store, turns: Turns) -> None:
        self._store = store
        self._turns = turns

    def get_experiment_by_name(self, name: str) -> Experiment | None:
        """Return an experiment, or None."""
        ids = self._store.experiments
        return self._store.ask(
            lambda: (
                Experiment(ids[name], name, "", "active", tags=self._store.experiment_tags[name])
                if name in ids
                else None
            )
        )

    def create_experiment(self, name: str, tags: dict[str, str], **_: Any) -> str:
        """Make an experiment."""

        def work() -> str:
            if name in self._store.experiments:
                raise _refusal("RESOURCE_ALREADY_EXISTS", name)
            self._store.experiments[name] = str(len(self._store.experiments))
            self._store.experiment_tags[name] = [ExperimentTag(*each) for each in tags.items()]
            return self._store.experiments[name]

        return str(self._store.do("create_experiment", work))

    def create_run(
        self,
        experiment_id: str,
        start_time: int | None = None,
        tags: dict[str, str] | None = None,
        run_name: str | None = None,
    ) -> Run:
        """Make a run."""
        store = self._store

        def work() -> Run:
            name = run_name or f"run-{len(store.runs)}"
            started = int(self._turns.now * 1000) if start_time is None else start_time
            run = StoredRun(f"{len(store.runs):032x}", experiment_id, started, name)
            run.tags = {**(tags or {}), "mlflow.runName": name}
            store.runs[run.run_id] = run
            return run.as_run()

        return store.do("create_run", work)

    def log_batch(
        self,
        run_id: str,
        metrics: Sequence[Metric] = (),
        params: Sequence[Param] = (),
        tags: Sequence[RunTag] = (),
    ) -> None:
        """Write values; parameters first, then metrics, then tags, as MLflow does."""
        store = self._store

        def first() -> StoredRun:
            run = store.active(run_id)
            for param in params:
                if run.params.get(param.key, param.value) != param.value:
                    raise _refusal("INVALID_PARAMETER_VALUE", f"{param.key} cannot change")
            run.params.update({param.key: param.value for param in params})
            for each in metrics:
                run.points[each.key, each.step, each.timestamp, repr(each.value)] = each.value
            return run

        def work() -> None:
            first().tags.update({tag.key: tag.value for tag in tags})

        store.do("log_batch", work, first)

    def log_inputs(self, run_id: str, datasets: Sequence[DatasetInput]) -> None:
        """Add data sets, each once."""

        def work() -> None:
            run = self._store.active(run_id)
            known = {each.dataset.digest for each in run.inputs}
            run.inputs = [*run.inputs, *(it for it in datasets if it.dataset.digest not in known)]

        self._store.do("log_inputs", work)

    def set_tag(self, run_id: str, key: str, value: str) -> None:
        """Write a tag."""
        self._store.do(
            "set_tag", lambda: self._store.active(run_id).tags.__setitem__(key, str(value))
        )

    def delete_tag(self, run_id: str, key: str) -> None:
        """Remove a tag."""

        def work() -> None:
            if self._store.active(run_id).tags.pop(key, None) is None:
                raise _refusal("RESOURCE_DOES_NOT_EXIST", f"no tag {key}")

        self._store.do("delete_tag", work)

    def set_terminated(
        self, run_id: str, status: str | None = None, end_time: int | None = None
    ) -> None:
        """End a run."""

        def work() -> None:
            run = self._store.active(run_id)
            run.status = status or "FINISHED"
            run.end_time = end_time or int(self._turns.now * 1000)

        self._store.do("set_terminated", work)

    def update_run(self, run_id: str, status: str | None = None, name: str | None = None) -> None:
        """Change a run's state or name."""

        def work() -> None:
            run = self._store.active(run_id)
            if status is not None:
                run.status, run.end_time = status, None
            if name is not None:
                run.name = run.tags["mlflow.runName"] = name

        self._store.do("update_run", work)

    def delete_run(self, run_id: str) -> None:
        """Delete a run."""

        def work() -> None:
            self._store.active(run_id).deleted = True

        self._store.do("delete_run", work)

    def log_text(self, run_id: str, text: str, path: str) -> None:
        """Write an artifact."""
        self._store.do(
            "log_text", lambda: self._store.active(run_id).artifacts.__setitem__(path, text)
        )

    def log_artifact(self, run_id: str, file: str, folder: str | None = None) -> None:
        """Upload an artifact."""
        name = f"{folder}/{Path(file).name}" if folder else Path(file).name
        self.log_text(run_id, Path(file).read_text(), name)

    def get_run(self, run_id: str) -> Run:
        """Return a run."""

        def work() -> Run:
            if run_id not in self._store.runs:
                raise _refusal("RESOURCE_DOES_NOT_EXIST", run_id)
            return self._store.runs[run_id].as_run()

        return self._store.ask(work)

    def search_runs(
        self,
        experiment_ids: Sequence[str],
        filter_string: str = "",
        max_results: int = 1000,
        order_by: Sequence[str] = (),
        page_token: str | None = None,
    ) -> PagedList[Run]:
        """Return the active runs that have some tags, the oldest first."""
        wanted = dict(_TAG.findall(filter_string)).items()

        def work() -> PagedList[Run]:
            found = [
                run
                for run in self._store.runs.values()
                if run.experiment_id in experiment_ids
                and not run.deleted
                and wanted <= run.tags.items()
            ]
            found.sort(key=lambda run: run.start_time)
            return PagedList([run.as_run() for run in found], None)

        return self._store.ask(work)

    def get_metric_history(self, run_id: str, key: str) -> list[Metric]:
        """Return the points of a metric."""
        return self._store.ask(lambda: self._store.runs[run_id].history(key))
