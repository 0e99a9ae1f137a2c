"""A sweep's record, written as its driver writes it, with a clock of its own."""

from tune_tf.record import Record


class RecordedSweep:
    """A record in a session; each write takes a second."""

    def __init__(self, folder):
        self.now = 1_700_000_000.0
        folder.mkdir(parents=True, exist_ok=True)
        self.record = Record(folder, clock=self._clock)
        self.record.begin_session()

    def _clock(self):
        self.now += 1.0
        return self.now

    def create(self, number, **config):
        trial_id = f"t{number}"
        self.record.record_creation(
            trial_id, number, {"rate": 0.5, **config}, name=f"trial_{number}", tag=f"{number + 1}"
        )
        return trial_id

    def start(self, number, **config):
        trial_id = self.create(number, **config)
        self.record.record_start(trial_id, {"rate": 0.5, **config}, devices="1 CPU")
        return trial_id

    def report(self, number, epoch, loss=1.0, *, config=None, exploits=0, **more):
        metrics = {"loss": loss, "training_iteration": epoch, "time_total_s": float(epoch), **more}
        self.record.record_result(number, metrics, config, exploits)

    def end(self, number, outcome, cause=None, error=None):
        self.record.record_end(f"t{number}", outcome, cause, error)

    def run(self, number, outcome, *losses, **config):
        """Start a trial, which reports some losses and ends."""
        self.start(number, **config)
        for epoch, loss in enumerate(losses, start=1):
            self.report(number, epoch, loss)
        self.end(number, outcome)

    def finish(self, *, interrupted=False):
        self.record.record_session_end(interrupted=interrupted, run_ids={})

    def close(self):
        self.record.__exit__(None, None, None)
