"""A trial without TensorFlow that holds as much of a batch as it takes at once."""

import os
from pathlib import Path

from ray import tune


class StandInTrial(tune.Trainable):
    """Runs out of memory in its second iteration while it takes a batch in too few pieces.

    Its config says how many ``pieces`` are enough, how many ``bytes`` a whole batch really holds,
    which ``control_group`` its process enters, and whether its retry ``raises`` something else.
    """

    def setup(self, config):
        self._pieces = getattr(self.trial_resources, "micro_batches", 1)
        if group := config.get("control_group"):
            Path(group).write_text(str(os.getpid()))

    def step(self):
        if self.config.get("raises") and self._pieces > 1:
            raise RuntimeError("not for want of room")
        if self.iteration and self._pieces < self.config.get("pieces", 1):
            raise MemoryError("there is no room for so much at once")
        if self.iteration:
            held = b"x" * (self.config.get("bytes", 0) // self._pieces)
            del held
        return {"loss": 0.0, "micro_batches": self._pieces}

    def save_checkpoint(self, checkpoint_dir):
        return {}

    def load_checkpoint(self, checkpoint):
        pass
