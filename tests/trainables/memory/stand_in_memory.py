"""A trial without TensorFlow that holds as much of a batch as it takes at once."""

from ray import tune


class StandInTrial(tune.Trainable):
    """Runs out of memory in its second iteration while it takes a batch in too few pieces.

    Its config says how many ``pieces`` are enough, and whether its retry ``raises`` something else.
    """

    def setup(self, config):
        self._pieces = getattr(self.trial_resources, "micro_batches", 1)

    def step(self):
        if self.config.get("raises") and self._pieces > 1:
            raise RuntimeError("not for want of room")
        if self.iteration and self._pieces < self.config.get("pieces", 1):
            raise MemoryError("there is no room for so much at once")
        return {"loss": 0.0, "micro_batches": self._pieces}

    def save_checkpoint(self, checkpoint_dir):
        return {}

    def load_checkpoint(self, checkpoint):
        pass
