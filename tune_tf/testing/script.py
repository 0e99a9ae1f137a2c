"""Scripted trials with a given end."""

import enum
import math
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray import tune

AT = 2
"""Iteration at which a script acts."""


class Act(enum.Enum):
    """Action of a trial at iteration :data:`AT`."""

    GO_ON = "continues to its limit"
    DIVERGE = "reports NaN"
    RAISE = "raises an error, again at each retry"
    DIE = "has its process killed, once"


@dataclass(frozen=True)
class Script:
    """Script of one trial.

    Args:
        act: Action at iteration :data:`AT`.
        level: Limit of the loss, which is ``level + 1 / iteration``.
    """

    act: Act = Act.GO_ON
    level: float = 0.0

    def loss(self, iteration: int) -> float:
        """Return the loss at an iteration, counted from 1."""
        diverged = self.act is Act.DIVERGE and iteration >= AT
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
        if iteration == AT and self._script.act is Act.RAISE:
            raise RuntimeError("this script raises")
        died = self._folder / f"died-{self._number}"
        if iteration == AT and self._script.act is Act.DIE and not died.exists():
            died.touch()
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
