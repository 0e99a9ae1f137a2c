"""A parameter server and its one worker, as a loop of one process."""

from tune_tf.parallelism import Mirrored
from tune_tf.training.parameter_server.gradient_loop import GradientLoop
from tune_tf.training.parameter_server.tasks import Task
from tune_tf.training.parameter_server.update_loop import UpdateLoop


class ServerAndWorker(UpdateLoop):
    """Loop that trains each batch by a gradient of a loop of its own."""

    def __init__(self, replicas):
        super().__init__(replicas, Mirrored())
        self._worker = GradientLoop(replicas, Mirrored())

    def start(self, workload, config, rows, seed):
        super().start(workload, config, rows, seed)
        self._worker.start(workload, config, rows, seed)
        self._version = 0

    def epoch(self):
        self.open_epoch()
        for batch in range(self.program.num_batches):
            task = Task(batch, self.rows_of(batch), *self._weights(), self.program.loss_scale)
            result = self._worker.do(task)
            self.program.apply(result.gradient)
            self._version += 1
        return self.close_epoch(result.counters, self._worker.validate(*self._weights()))

    def finish(self):
        super().finish()
        self._worker.finish()

    def _weights(self):
        program = self.program
        is_first = self._worker.version is None
        return self._version, program.values(None if is_first else program.roles.live)
