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

    def epoch(self):
        self.open_epoch()
        program, worker = self.program, self._worker
        worker.load(program.values())
        for batch in range(program.num_batches):
            task = Task(batch, self.rows_of(batch), batch, program.values(program.roles.live))
            program.apply(worker.do(task))
        worker.load(program.values())
        return self.close_epoch(worker.validate())

    def finish(self):
        super().finish()
        self._worker.finish()
