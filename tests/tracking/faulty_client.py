"""MLflow's client, which dies or fails before or after one of its calls."""

WRITES = (
    "create_experiment",
    "create_run",
    "delete_run",
    "delete_tag",
    "log_artifact",
    "log_batch",
    "log_inputs",
    "log_text",
    "restore_experiment",
    "set_terminated",
    "update_run",
)
READS = ("get_experiment_by_name", "get_run", "search_runs")


class DeadError(BaseException):
    """The process is dead."""


class FaultyClient:
    """A client that raises once, before or after the call of a number.

    Args:
        client: MLflow's own.
        at: Number of the call, from 0; None for a client that works.
        after: Whether the store does what is asked, and the answer is lost.
        error: What is raised.
    """

    def __init__(self, client, at=None, *, after=False, error=DeadError):
        self.calls = []
        self._client = client
        self._at = at
        self._after = after
        self._error = error

    def __getattr__(self, name):
        call = getattr(self._client, name)
        if name not in WRITES + READS:
            return call

        def counted(*arguments, **options):
            self.calls.append(name)
            is_hit = len(self.calls) - 1 == self._at
            if is_hit and not self._after:
                raise self._error(name)
            answer = call(*arguments, **options)
            if is_hit:
                raise self._error(name)
            return answer

        return counted
