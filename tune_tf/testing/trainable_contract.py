"""Contract tests of a Trainable: reuse and restore do not change a trial's results."""

import contextlib
import math
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar

import pytest
import ray
from ray import cloudpickle, tune

from tune_tf.outcome import STOP_REASON

_EPOCHS = 3
_NOTICED_WITHIN_S = 20.0


@dataclass(frozen=True)
class TrainableResults:
    """Results of a Trainable in several trials.

    Args:
        first: Results of the first trial.
        second: Results of another config, after a reset.
        again: Results of the first config, after another reset.
        resumed: Results of the first trial after a reset, restored from its first checkpoint.
        elsewhere: The same in a new Trainable.
        still_taken: Cluster resources not released at the end, by kind.
    """

    first: list[dict[str, Any]]
    second: list[dict[str, Any]]
    again: list[dict[str, Any]]
    resumed: list[dict[str, Any]]
    elsewhere: list[dict[str, Any]]
    still_taken: dict[str, float]


class TrainableContract:
    """Contract tests of a Trainable; a test class that subclasses it runs them.

    They need a connected Ray cluster, where the trials run in a separate process.

    Attributes:
        config: Config of a trial.
        other_config: Config of another trial, with other results.
        metrics: Metrics that each iteration reports as finite numbers.
        tolerance: Largest allowed difference between equal trials, relative to values above 1; 0
            if training is deterministic.
    """

    config: ClassVar[Mapping[str, Any]] = {}
    other_config: ClassVar[Mapping[str, Any]] = {}
    metrics: ClassVar[tuple[str, ...]] = ("loss", "val_loss")
    tolerance: ClassVar[float] = 0.0

    @classmethod
    def make_trainable(cls) -> type[tune.Trainable]:
        """Return the Trainable class; called in the process that runs the trials."""
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def played(cls) -> TrainableResults:
        """Results of the Trainable."""
        with _sent_along(sys.modules[cls.__module__]):
            # The environment makes Ray start a new process: in an idle one, TensorFlow may have
            # been initialized with other devices.
            alone = ray.remote(
                num_cpus=0, max_calls=1, runtime_env={"env_vars": {"TUNE_TF_CONTRACT": "1"}}
            )
            found: TrainableResults = ray.get(alone(_play).remote(cls))
        return found

    def test_each_iteration_reports_its_metrics(self, played: TrainableResults) -> None:
        """Metrics are finite, and iterations count from 1."""
        for number, result in enumerate(played.first, 1):
            assert result["training_iteration"] == number
            assert all(math.isfinite(result[metric]) for metric in self.metrics), result
            assert not result["done"]
            assert STOP_REASON not in result

    def test_another_config_gives_other_numbers(self, played: TrainableResults) -> None:
        """A reused process trains the new config."""
        assert self._furthest(played.second, played.first) > self.tolerance

    def test_a_reused_process_gives_the_numbers_of_a_fresh_one(
        self, played: TrainableResults
    ) -> None:
        """The previous trial leaves no state behind."""
        assert self._furthest(played.again, played.first) <= self.tolerance

    def test_a_restored_trial_goes_on_as_if_it_had_not_stopped(
        self, played: TrainableResults
    ) -> None:
        """Another trial has run in between."""
        assert [r["training_iteration"] for r in played.resumed] == [2, 3]
        assert self._furthest(played.resumed, played.first[1:]) <= self.tolerance

    def test_a_trial_goes_on_in_another_process(self, played: TrainableResults) -> None:
        """The checkpoint is complete."""
        assert self._furthest(played.elsewhere, played.first[1:]) <= self.tolerance

    def test_an_end_gives_everything_back(self, played: TrainableResults) -> None:
        """A stopped trial releases its actors and reservations."""
        assert played.still_taken == {}

    def test_it_says_what_it_needs(self) -> None:
        """The resource request has at least one CPU."""
        needed = self.make_trainable().default_resource_request(dict(self.config))
        assert isinstance(needed, tune.PlacementGroupFactory)
        assert needed.required_resources.get("CPU", 0) >= 1

    def _furthest(self, first: list[dict[str, Any]], second: list[dict[str, Any]]) -> float:
        return max(
            abs(one[metric] - other[metric]) / max(1.0, abs(other[metric]))
            for one, other in zip(first, second, strict=True)
            for metric in self.metrics
        )


@contextlib.contextmanager
def _sent_along(module: ModuleType) -> Iterator[None]:
    """Pickle a module by value, since other processes may be unable to import test modules."""
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def _play(contract: type[TrainableContract]) -> TrainableResults:
    made = contract.make_trainable()
    free = ray.available_resources()
    trial = made(config=dict(contract.config))
    with tempfile.TemporaryDirectory() as folder:
        first = [trial.train()]
        saved = trial.save(folder)
        first += [trial.train() for _ in range(_EPOCHS - 1)]
        second = _begun(trial, contract.other_config)
        again = _begun(trial, contract.config)
        _begun(trial, contract.other_config, epochs=1)
        _reset(trial, contract.config)
        trial.restore(saved)
        resumed = [trial.train() for _ in range(_EPOCHS - 1)]
        trial.stop()
        fresh = made(config=dict(contract.config))
        fresh.restore(saved)
        elsewhere = [fresh.train() for _ in range(_EPOCHS - 1)]
        fresh.stop()
    return TrainableResults(first, second, again, resumed, elsewhere, _still_taken(free))


def _begun(
    trial: tune.Trainable, config: Mapping[str, Any], epochs: int = _EPOCHS
) -> list[dict[str, Any]]:
    _reset(trial, config)
    return [trial.train() for _ in range(epochs)]


def _reset(trial: tune.Trainable, config: Mapping[str, Any]) -> None:
    assert trial.reset(dict(config))


def _still_taken(free: Mapping[str, float]) -> dict[str, float]:
    """Return the resources not released after giving Ray time to notice."""
    deadline = time.monotonic() + _NOTICED_WITHIN_S
    while True:
        now = ray.available_resources()
        taken = {
            kind: free[kind] - now.get(kind, 0)
            for kind in ("CPU", "GPU")
            if now.get(kind, 0) < free.get(kind, 0)
        }
        if not taken or time.monotonic() > deadline:
            return taken
        time.sleep(0.1)
