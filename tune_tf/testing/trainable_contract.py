"""Contract tests of a Trainable: reuse and restore do not change a trial's results."""

import math
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import ray
from ray import cloudpickle, tune

from tune_tf.outcome import STOP_REASON

_EPOCHS = 3
_RELEASE_S = 20.0


@dataclass(frozen=True)
class TrainableResults:
    """Results of a Trainable in several trials.

    Args:
        second: Results of another config, after a reset.
        again: Results of the first config, after another reset.
        resumed: Results of the first trial after a reset, restored from its first checkpoint.
        in_new: The same in a new Trainable.
        unreleased: Cluster resources not released at the end, by kind.
    """

    first: list[dict[str, Any]]
    second: list[dict[str, Any]]
    again: list[dict[str, Any]]
    resumed: list[dict[str, Any]]
    in_new: list[dict[str, Any]]
    unreleased: dict[str, float]


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
    def results(cls) -> TrainableResults:
        """Results of the Trainable."""
        module = sys.modules[cls.__module__]
        # Pickled by value, since other processes may be unable to import test modules.
        cloudpickle.register_pickle_by_value(module)
        try:
            # The environment makes Ray start a new process: in an idle one, TensorFlow may have
            # been initialized with other devices.
            run_in_new_process = ray.remote(
                num_cpus=0, max_calls=1, runtime_env={"env_vars": {"TUNE_TF_CONTRACT": "1"}}
            )
            results: TrainableResults = ray.get(run_in_new_process(_run_trials).remote(cls))
        finally:
            cloudpickle.unregister_pickle_by_value(module)
        return results

    def test_each_iteration_reports_its_metrics(self, results: TrainableResults) -> None:
        """Metrics are finite, and iterations count from 1."""
        for number, result in enumerate(results.first, 1):
            assert result["training_iteration"] == number
            assert all(math.isfinite(result[metric]) for metric in self.metrics), result
            assert not result["done"]
            assert STOP_REASON not in result

    def test_another_config_gives_other_numbers(self, results: TrainableResults) -> None:
        """A reused process trains the new config."""
        assert self._max_difference(results.second, results.first) > self.tolerance

    def test_a_reused_process_gives_the_numbers_of_a_fresh_one(
        self, results: TrainableResults
    ) -> None:
        """The previous trial leaves no state behind."""
        assert self._max_difference(results.again, results.first) <= self.tolerance

    def test_a_restored_trial_continues_as_if_it_had_not_stopped(
        self, results: TrainableResults
    ) -> None:
        """Another trial has run in between."""
        assert [r["training_iteration"] for r in results.resumed] == [2, 3]
        assert self._max_difference(results.resumed, results.first[1:]) <= self.tolerance

    def test_a_trial_continues_in_a_new_trainable(self, results: TrainableResults) -> None:
        """The checkpoint is complete."""
        assert self._max_difference(results.in_new, results.first[1:]) <= self.tolerance

    def test_a_stopped_trial_releases_its_resources(self, results: TrainableResults) -> None:
        """Its actors and reservations end."""
        assert results.unreleased == {}

    def test_the_resource_request_has_a_cpu(self) -> None:
        """Tune reserves at least one CPU."""
        request = self.make_trainable().default_resource_request(dict(self.config))
        assert isinstance(request, tune.PlacementGroupFactory)
        assert request.required_resources.get("CPU", 0) >= 1

    def _max_difference(self, first: list[dict[str, Any]], second: list[dict[str, Any]]) -> float:
        return max(
            abs(one[metric] - other[metric]) / max(1.0, abs(other[metric]))
            for one, other in zip(first, second, strict=True)
            for metric in self.metrics
        )


def _run_trials(contract: type[TrainableContract]) -> TrainableResults:
    trainable = contract.make_trainable()
    free = ray.available_resources()
    trial = trainable(config=dict(contract.config))
    with tempfile.TemporaryDirectory() as folder:
        first = _train(trial, 1)
        checkpoint = trial.save(folder)
        first += _train(trial, _EPOCHS - 1)
        assert trial.reset(dict(contract.other_config))
        second = _train(trial, _EPOCHS)
        assert trial.reset(dict(contract.config))
        again = _train(trial, _EPOCHS)
        assert trial.reset(dict(contract.other_config))
        _train(trial, 1)
        assert trial.reset(dict(contract.config))
        trial.restore(checkpoint)
        resumed = _train(trial, _EPOCHS - 1)
        trial.stop()
        fresh = trainable(config=dict(contract.config))
        fresh.restore(checkpoint)
        in_new = _train(fresh, _EPOCHS - 1)
        fresh.stop()
    return TrainableResults(first, second, again, resumed, in_new, _unreleased(free))


def _train(trial: tune.Trainable, epochs: int) -> list[dict[str, Any]]:
    return [trial.train() for _ in range(epochs)]


def _unreleased(free: Mapping[str, float]) -> dict[str, float]:
    """Return the resources not released after giving Ray time to notice."""
    deadline = time.monotonic() + _RELEASE_S
    while True:
        available = ray.available_resources()
        unreleased = {
            kind: free[kind] - available.get(kind, 0)
            for kind in ("CPU", "GPU")
            if available.get(kind, 0) < free.get(kind, 0)
        }
        if not unreleased or time.monotonic() > deadline:
            return unreleased
        time.sleep(0.1)
