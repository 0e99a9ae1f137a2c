"""Contract tests of a scheduler: a trial's outcome is the same in Tune, Optuna and MLflow."""

import enum
import math
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from ray import tune
from ray.tune.schedulers import TrialScheduler

from tune_tf.objective import Objective
from tune_tf.outcome import Outcome
from tune_tf.searchers import OptunaSearcher
from tune_tf.testing.truth import TrialStates, assert_consistent_states, trial_states
from tune_tf.tracking import MLflowCallback

_BAD = 9.0

ACTION_ITERATION = 2
"""Iteration at which a script acts."""


class Action(enum.Enum):
    """Action of a trial at iteration :data:`ACTION_ITERATION`."""

    CONTINUE = "continues to its limit"
    DIVERGE = "reports NaN"
    RAISE = "raises an error, again at each retry"
    KILL = "has its process killed, once"


@dataclass(frozen=True)
class Script:
    """Script of one trial: action at :data:`ACTION_ITERATION`, and limit of the loss."""

    action: Action = Action.CONTINUE
    level: float = 0.0

    def loss(self, iteration: int) -> float:
        """Return the loss at an iteration: ``level + 1 / iteration``."""
        diverged = self.action is Action.DIVERGE and iteration >= ACTION_ITERATION
        return math.nan if diverged else self.level + 1 / iteration


class ScriptedTrainable(tune.Trainable):
    """Trainable that runs the script with the ``number`` of its config, and reports ``loss``.

    For ``tune.with_parameters(ScriptedTrainable, scripts=..., folder=...)``.
    """

    def setup(self, config: dict[str, Any], *, scripts: Sequence[Script], folder: str) -> None:
        """Start the script of a config; ``folder`` is for the markers of killed processes."""
        self._scripts = scripts
        self._folder = Path(folder)
        self.reset_config(config)

    def step(self) -> dict[str, float]:
        """Run one iteration."""
        iteration = self.iteration + 1
        action = self._script.action if iteration == ACTION_ITERATION else Action.CONTINUE
        if action is Action.RAISE:
            raise RuntimeError("this script raises")
        marker = self._folder / f"killed-{self._number}"
        if action is Action.KILL and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return {"loss": self._script.loss(iteration)}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, int]:
        """Return the iteration, which Tune writes."""
        return {"iteration": self.iteration}

    def load_checkpoint(self, checkpoint: dict[str, int] | None) -> None:
        """Compare Tune's count of iterations with the checkpoint.

        Raises:
            ValueError: They differ: an iteration was lost or repeated.
        """
        if checkpoint is None or checkpoint["iteration"] != self.iteration:
            raise ValueError(f"at iteration {self.iteration}, but the checkpoint is {checkpoint}")

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Start another script."""
        self._number = int(new_config["number"])
        self._script = self._scripts[self._number]
        return True


@dataclass(frozen=True)
class NumberedSpace:
    """Search space with the numbers of the scripts, in order, and a mutable ``rate``."""

    num_scripts: int

    def __call__(self, trial: Any) -> dict[str, Any]:
        """Return the config of a trial."""
        number = trial.number % self.num_scripts
        return {
            "number": trial.suggest_int("number", number, number),
            "rate": trial.suggest_float("rate", 0.0, 1.0),
        }


class SchedulerContract:
    """Contract tests of a scheduler; a test class that subclasses it runs them.

    Attributes:
        objective: Objective of the scripted trials.
        scripts: Scripts of the trials, in order of suggestion; the first is by far the best, and
            one is by far the worst.
        max_t: Most iterations of a trial; the scheduler must use it too.
        stops_trials: Whether the scheduler stops poor trials.
        max_concurrent_trials: Number of parallel trials.
    """

    objective: ClassVar[Objective] = Objective("loss", "min")
    scripts: ClassVar[tuple[Script, ...]] = (
        Script(level=0.0),
        Script(Action.DIVERGE, level=0.3),
        Script(level=0.3),
        Script(level=_BAD),
        Script(level=0.1),
        Script(level=0.2),
        Script(Action.KILL, level=0.05),
        Script(Action.RAISE, level=0.2),
    )
    max_t: ClassVar[int] = 4
    stops_trials: ClassVar[bool] = True
    max_concurrent_trials: ClassVar[int] = 2

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
    def states(cls, tmp_path_factory: pytest.TempPathFactory) -> Mapping[int, TrialStates]:
        """States of each script's trial after a sweep; needs a connected Ray cluster."""
        import mlflow

        folder = tmp_path_factory.mktemp("contract")
        uri, scheduler = cls.make_store(folder), cls.make_scheduler()
        space = NumberedSpace(len(cls.scripts))
        storage = str(folder / "study.journal")
        searcher = OptunaSearcher(space, cls.objective, "random", 0, storage, "contract")
        analysis = tune.run(
            tune.with_parameters(ScriptedTrainable, scripts=cls.scripts, folder=str(folder)),
            name="contract",
            storage_path=str(folder / "ray"),
            num_samples=len(cls.scripts),
            search_alg=searcher,
            scheduler=scheduler,
            stop={"training_iteration": cls.max_t},
            max_concurrent_trials=cls.max_concurrent_trials,
            max_failures=1,
            reuse_actors=True,
            checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1),
            callbacks=[MLflowCallback(uri, "contract", objective=cls.objective)],
            raise_on_failed_trial=False,
            verbose=0,
        )
        # Read from the storage again.
        study = OptunaSearcher(space, cls.objective, "random", 0, storage, "contract").study
        client = mlflow.MlflowClient(uri)
        states = trial_states(analysis.trials, study, client, "contract", cls.objective.metric)
        numbers = {t.user_attrs["tune_trial_id"]: t.params["number"] for t in study.trials}
        return {numbers[trial_id]: state for trial_id, state in states.items()}

    def test_every_trial_is_once_and_alike_in_tune_optuna_and_mlflow(
        self, states: Mapping[int, TrialStates]
    ) -> None:
        """Each script has one trial, with the same outcome in all systems."""
        assert sorted(states) == list(range(len(self.scripts)))
        assert_consistent_states({str(number): state for number, state in states.items()})

    def test_the_best_trial_runs_to_its_limit_and_is_completed(
        self, states: Mapping[int, TrialStates]
    ) -> None:
        """No scheduler stops the first script."""
        assert states[0].outcome is Outcome.COMPLETED
        assert len(states[0].curve) == self.max_t

    def test_the_worst_trial_is_pruned_where_the_scheduler_stops_trials(
        self, states: Mapping[int, TrialStates]
    ) -> None:
        """Enough trials precede it for any scheduler to compare it."""
        worst = states[max(states, key=lambda number: self.scripts[number].level)]
        assert worst.outcome is (Outcome.PRUNED if self.stops_trials else Outcome.COMPLETED)
        assert (max(worst.curve) < self.max_t) == self.stops_trials

    def test_a_trial_that_reports_nan_has_diverged(self, states: Mapping[int, TrialStates]) -> None:
        """The trial fails in Optuna and MLflow, and Optuna never receives the NaN."""
        diverged = self._assert_outcome(states, Action.DIVERGE, Outcome.DIVERGED)
        assert all(value == value for value in diverged.optuna_values.values())

    def test_a_trial_that_raises_has_failed(self, states: Mapping[int, TrialStates]) -> None:
        """A retry does not change the outcome."""
        self._assert_outcome(states, Action.RAISE, Outcome.ERROR)

    def test_a_trial_whose_process_is_killed_continues_from_its_checkpoint(
        self, states: Mapping[int, TrialStates]
    ) -> None:
        """Every iteration is recorded once."""
        self._assert_outcome(states, Action.KILL, Outcome.COMPLETED, self.max_t)

    def _assert_outcome(
        self,
        states: Mapping[int, TrialStates],
        action: Action,
        outcome: Outcome,
        iteration: int = ACTION_ITERATION,
    ) -> TrialStates:
        """Assert the outcome of a script, or that it was pruned before an iteration."""
        number = next(i for i, script in enumerate(self.scripts) if script.action is action)
        state = states[number]
        is_pruned = self.stops_trials and max(state.curve) < iteration
        assert state.outcome is outcome or (is_pruned and state.outcome is Outcome.PRUNED)
        return state
