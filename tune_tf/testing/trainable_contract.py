"""Contract tests of a Trainable: reuse and restore do not change a trial's results."""

import math
import sys
import tempfile
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
import ray
from ray import cloudpickle, tune

_EPOCHS = 3
_Results = list[dict[str, Any]]


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
    def results(cls) -> dict[str, _Results]:
        """Results of trials by what happened to them."""
        module = sys.modules[cls.__module__]
        # Pickled by value, since other processes may be unable to import test modules.
        cloudpickle.register_pickle_by_value(module)
        try:
            # The environment makes Ray start a new process: in an idle one, TensorFlow may have
            # been initialized with other devices.
            run_in_new_process = ray.remote(
                num_cpus=0, max_calls=1, runtime_env={"env_vars": {"TUNE_TF_CONTRACT": "1"}}
            )
            results: dict[str, _Results] = ray.get(run_in_new_process(_run_trials).remote(cls))
        finally:
            cloudpickle.unregister_pickle_by_value(module)
        return results

    def test_each_iteration_reports_its_metrics(self, results: dict[str, _Results]) -> None:
        """Metrics are finite, and iterations count from 1."""
        for number, result in enumerate(results["first"], 1):
            assert result["training_iteration"] == number
            assert all(math.isfinite(result[metric]) for metric in self.metrics), result
            assert not result["done"]

    def test_another_config_gives_other_numbers(self, results: dict[str, _Results]) -> None:
        """A reused process trains the new config."""
        assert self._max_difference(results["second"], results["first"]) > self.tolerance

    def test_a_reused_process_gives_the_numbers_of_a_fresh_one(
        self, results: dict[str, _Results]
    ) -> None:
        """The previous trial leaves no state behind."""
        assert self._max_difference(results["again"], results["first"]) <= self.tolerance

    @pytest.mark.parametrize("where", ["resumed", "in another Trainable"])
    def test_a_restored_trial_continues_as_if_it_had_not_stopped(
        self, results: dict[str, _Results], where: str
    ) -> None:
        """Another trial has run in between."""
        assert [r["training_iteration"] for r in results[where]] == [2, 3]
        assert self._max_difference(results[where], results["first"][1:]) <= self.tolerance

    def _max_difference(self, first: _Results, second: _Results) -> float:
        return max(
            abs(one[metric] - other[metric]) / max(1.0, abs(other[metric]))
            for one, other in zip(first, second, strict=True)
            for metric in self.metrics
        )


def _run_trials(contract: type[TrainableContract]) -> dict[str, _Results]:
    trainable, results = contract.make_trainable(), {}
    config, other_config = dict(contract.config), dict(contract.other_config)
    trial = trainable(config=config)
    with tempfile.TemporaryDirectory() as folder:
        results["first"] = _train(trial, 1)
        checkpoint = trial.save(folder)
        results["first"] += _train(trial, _EPOCHS - 1)
        assert trial.reset(other_config)
        results["second"] = _train(trial, _EPOCHS)
        assert trial.reset(config)
        results["again"] = _train(trial, _EPOCHS)
        assert trial.reset(other_config)
        _train(trial, 1)
        assert trial.reset(config)
        trial.restore(checkpoint)
        results["resumed"] = _train(trial, _EPOCHS - 1)
        trial.stop()
        fresh = trainable(config=config)
        fresh.restore(checkpoint)
        results["in another Trainable"] = _train(fresh, _EPOCHS - 1)
        fresh.stop()
    return results


def _train(trial: tune.Trainable, epochs: int) -> _Results:
    return [trial.train() for _ in range(epochs)]
