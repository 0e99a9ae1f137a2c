"""A loop whose programs are tried before an epoch depends on them."""

import abc
import logging

from tune_tf.errors import WorkloadError
from tune_tf.training.loop import GraphLoop, LoopTrial
from tune_tf.training.placed import Placed
from tune_tf.workload import Config

_log = logging.getLogger(__name__)


class RehearsedLoop(GraphLoop, abc.ABC):
    """Tries a new program once when a trial is prepared, which also traces it.

    A carried scalar is NaN to code that takes its number while tracing. A program that fails or
    gives no finite numbers is made again with plain floats; does that one not either, carrying is
    not to blame, and goes on.
    """

    @abc.abstractmethod
    def _rehearse(self, trial: LoopTrial) -> bool:
        """Run a trial's new program once, to no effect; return whether its numbers are finite."""

    def _prepared(self, config: Config, rows: Placed, seed: int) -> LoopTrial:
        if rows.is_streamed:
            raise WorkloadError(
                "asynchronous workers pick rows by number, but Data holds a Pipeline: return "
                "arrays, or use another kind of parallelism"
            )
        trial = super()._prepared(config, rows, seed)
        if not trial.is_first_of_program:
            return trial
        key = trial.key
        if not (key and trial.program.num_carried):
            self._rehearse(trial)
            return trial
        try:
            if self._rehearse(trial):
                return trial
        except Exception as error:  # noqa: BLE001  whatever it is, the plain program raises it too
            _log.debug("the program with carried scalars failed: %s", error)
        self._forget(trial.program, key)
        self._uncarried.add(key)
        plain = super()._prepared(config, rows, seed)
        if not self._rehearse(plain):
            self._uncarried.discard(key)
            self._keep(trial.program, key, config)
        return plain
