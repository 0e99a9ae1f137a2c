"""Scripted trials that end in a given way."""

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
"""Iteration at which a script does what it is there for."""


class Act(enum.Enum):
    """What a trial does at iteration :data:`AT`."""

    GO_ON = "goes on to its limit"
    DIVERGE = "reports NaN"
    RAISE = "raises an error, at each retry again"
    DIE = "has its process killed, once"


@dataclass(frozen=True)
class Script:
    """What one trial does.

    Args:
        act: What happens at iteration :data:`AT`.
        level: What its loss falls to, as ``level + 1 / iteration``.
    """

    act: Act = Act.GO_ON
    level: float = 0.0

    def loss(self, iteration: int) -> float:
        """Return the loss at an iteration, counted from 1."""
        diverged = self.act is Act.DIVERGE and iteration >= AT
        return math.nan if diverged else self.level + 1 / iteration


class ScriptedTrainable(tune.Trainable):
    """Plays the script whose number its config holds; reports ``loss``.

    For ``tune.with_parameters(ScriptedTrainable, scripts=..., folder=...)``.
    """

    def setup(self, config: dict[str, Any], *, scripts: Sequence[Script], folder: str) -> None:
        """Take up a script.

        Args:
            config: Holds the ``number`` of the script.
            scripts: All scripts of the sweep.
            folder: Where a process that is killed leaves word that it was.
        """
        self._scripts = scripts
        self._folder = Path(folder)
        self.reset_config(config)

    def step(self) -> dict[str, float]:
        """Do one iteration."""
        iteration = self.iteration + 1
        if iteration == AT and self._script.act is Act.RAISE:
            raise RuntimeError("this script raises")
        died = self._folder / f"died-{self._number}"
        if iteration == AT and self._script.act is Act.DIE and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return {"loss": self._script.loss(iteration)}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, int]:
        """Return the iteration; Tune writes it."""
        return {"iteration": self.iteration}

    def load_checkpoint(self, checkpoint: dict[str, int] | None) -> None:
        """Go on; Tune counts the iterations itself.

        Raises:
            ValueError: Tune's count is not the checkpoint's: an iteration was lost or doubled.
        """
        if checkpoint is None or checkpoint["iteration"] != self.iteration:
            raise ValueError(f"at iteration {self.iteration}, but the checkpoint is {checkpoint}")

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take up another script."""
        self._number = int(new_config["number"])
        self._script = self._scripts[self._number]
        return True
