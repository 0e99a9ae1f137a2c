"""Contract tests of a scheduler: a trial's outcome is the same in Tune, Optuna and MLflow."""

import math
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from ray import tune
from ray.tune.schedulers import TrialScheduler

from tune_tf.objective import Objective
from tune_tf.outcome import CONFIG_CHANGED_AT, STOP_REASON, Outcome
from tune_tf.searchers import OptunaSearcher
from tune_tf.space import Float, Int, SearchSpace
from tune_tf.tracking import MLflowCallback
from tune_tf.tracking.tags import STOP_REASON_TAG, TRIAL_ID_TAG

_ACTS_AT = 2
_BEST, _DIVERGES, _WORST, _IS_KILLED, _RAISES = 0, 1, 3, 6, 7
_ENDS = {_DIVERGES: Outcome.DIVERGED, _RAISES: Outcome.ERROR}
_LEVELS = (0.0, 0.3, 0.3, 9.0, 0.1, 0.2, 0.05, 0.2)


class ScriptedTrainable(tune.Trainable):
    """Trainable whose loss is a level plus ``1 / iteration``; three scripts meet with a fault."""

    def setup(self, config: dict[str, Any], *, folder: str) -> None:
        """Start the script with the ``number`` of the config; ``folder`` marks killed processes."""
        self._marker = Path(folder, "killed")
        self.reset_config(config)

    def step(self) -> dict[str, float]:
        """Run one iteration."""
        iteration = self.iteration + 1
        loss = _LEVELS[self._number] + 1 / iteration
        if iteration < _ACTS_AT:
            return {"loss": loss}
        if self._number == _RAISES:
            raise RuntimeError("this script raises")
        if self._number == _IS_KILLED and not self._marker.exists():
            self._marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return {"loss": math.nan if self._number == _DIVERGES else loss}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, int]:
        """Return the iteration, which Tune writes."""
        return {"iteration": self.iteration}

    def load_checkpoint(self, checkpoint: dict[str, int] | None) -> None:
        """Raise ValueError if Tune's count of iterations is not that of the checkpoint."""
        if checkpoint is None or checkpoint["iteration"] != self.iteration:
            raise ValueError(f"at iteration {self.iteration}, but the checkpoint is {checkpoint}")

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Start another script."""
        self._number = int(new_config["number"])
        return True


_SPACE = SearchSpace({"number": Int(0, len(_LEVELS) - 1), "rate": Float(0.0, 1.0)})
"""The number of a script, and a ``rate`` for mutations."""


@dataclass(frozen=True)
class TrialEnd:
    """End of a trial.

    Args:
        reasons: Outcome in MLflow's run and in Optuna's trial.
        states: State in Tune, Optuna and MLflow.
        curve: MLflow's losses by step.
        optuna_values: Optuna's losses by step.
        changed_at: Last step with the suggested config if the scheduler changed it.
    """

    reasons: tuple[str | None, str | None]
    states: tuple[str, str, str]
    curve: Mapping[int, float]
    optuna_values: Mapping[int, float]
    changed_at: int | None


class SchedulerContract:
    """Contract tests of a scheduler; a test class that subclasses it runs them.

    They need a connected Ray cluster.

    Attributes:
        objective: Objective of the scripted trials.
        max_t: Most iterations of a trial; the scheduler must use it too.
        stops_trials: Whether the scheduler stops poor trials.
    """

    objective: ClassVar[Objective] = Objective("loss", "min")
    max_t: ClassVar[int] = 4
    stops_trials: ClassVar[bool] = True

    @classmethod
    def make_scheduler(cls) -> TrialScheduler:
        """Return a new scheduler for :attr:`objective` and :attr:`max_t`."""
        raise NotImplementedError

    @classmethod
    def make_store(cls, folder: Path) -> str:
        """Return the URI of an empty MLflow store, which may be created in ``folder``."""
        return f"sqlite:///{folder / 'mlflow.db'}"

    @pytest.fixture(scope="class")
    @classmethod
    def ends(cls, tmp_path_factory: pytest.TempPathFactory) -> dict[int, TrialEnd]:
        """Ends of the trials of a sweep by their scripts."""
        import mlflow

        folder = tmp_path_factory.mktemp("contract")
        uri, scheduler = cls.make_store(folder), cls.make_scheduler()
        points = [{"number": number, "rate": 0.5} for number in range(len(_LEVELS))]
        searcher = OptunaSearcher(_SPACE, cls.objective, "random", 0, points_to_evaluate=points)
        trials = tune.run(
            tune.with_parameters(ScriptedTrainable, folder=str(folder)),
            name="contract",
            storage_path=str(folder / "ray"),
            num_samples=len(_LEVELS),
            search_alg=searcher,
            scheduler=scheduler,
            stop={"training_iteration": cls.max_t},
            max_concurrent_trials=2,
            max_failures=1,
            reuse_actors=True,
            checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1),
            callbacks=[MLflowCallback(uri, "contract", objective=cls.objective)],
            raise_on_failed_trial=False,
            verbose=0,
        ).trials
        client = mlflow.MlflowClient(uri)
        experiment = client.get_experiment_by_name("contract")
        runs = [
            run
            for run in client.search_runs([experiment.experiment_id])
            if TRIAL_ID_TAG in run.data.tags
        ]
        assert len(trials) == len(runs) == len(searcher.study.trials) == len(_LEVELS)
        run_of = {run.data.tags[TRIAL_ID_TAG]: run for run in runs}
        ends = {}
        for found in searcher.study.trials:
            (trial,) = (each for each in trials if each.config["number"] == found.number)
            run = run_of[trial.trial_id]
            history = client.get_metric_history(run.info.run_id, "loss")
            curve = {point.step: point.value for point in history}
            assert len(curve) == len(history), f"script {found.number} has a step twice"
            ends[found.number] = TrialEnd(
                (run.data.tags.get(STOP_REASON_TAG), found.user_attrs.get(STOP_REASON)),
                (trial.status, found.state.name, run.info.status),
                curve,
                found.intermediate_values,
                found.user_attrs.get(CONFIG_CHANGED_AT),
            )
        return ends

    @pytest.mark.parametrize("number", range(len(_LEVELS)))
    def test_a_trial_ends_alike_in_tune_optuna_and_mlflow(
        self, ends: Mapping[int, TrialEnd], number: int
    ) -> None:
        """It has its outcome unless it was pruned before, each step once, no value of others."""
        end = ends[number]
        outcome = Outcome(end.reasons[0])
        assert end.reasons[1] == outcome.value
        assert end.states == (outcome.tune, outcome.optuna, outcome.mlflow)
        last = end.changed_at or max(end.curve, default=0)
        assert sorted(s for s in end.curve if s <= last) == list(range(1, last + 1))
        assert end.optuna_values.items() <= end.curve.items()
        if outcome is Outcome.PRUNED:
            assert self.stops_trials
            assert number != _BEST
            assert end.optuna_values
        else:
            assert outcome is _ENDS.get(number, Outcome.COMPLETED)
            assert not (self.stops_trials and number == _WORST)
