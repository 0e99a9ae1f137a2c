"""What an error of a process that trains subtasks means."""

from ray.exceptions import RayError, RayTaskError

from tune_tf.errors import TuneTfError, WorkerError, WorkerLostError
from tune_tf.outcome import Outcome


def judged(error: BaseException) -> BaseException:
    """Return an error of Ray's as the trial should raise it."""
    if isinstance(error, RayTaskError):
        return error.cause if isinstance(error.cause, TuneTfError) else error
    return WorkerLostError(str(error)) if isinstance(error, RayError) else error


def is_death(error: BaseException) -> bool:
    """Return whether the process is gone."""
    return isinstance(error, WorkerLostError)


def may_be_retried(error: BaseException) -> bool:
    """Return whether a fresh process may do better: not if memory is short, or a setting wrong."""
    return isinstance(error, WorkerError) and Outcome.of_error(str(error)) is not Outcome.OOM
