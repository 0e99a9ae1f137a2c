"""Actor that prepares data once per job."""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tune_tf.data.leased_actor import NAMESPACE, LeasedActor, actor_name, leased_actor
from tune_tf.data.prepare.chunk import AssembledRows
from tune_tf.data.prepare.preparation import (
    ChangedFunctionError,
    PackedPreparation,
    Preparation,
    num_cpus,
)
from tune_tf.errors import WorkerError, WorkerLostError

if TYPE_CHECKING:
    import ray

_NAME = "preparer"
_KEEP_S = 300.0
"""Seconds that unused data are kept: longer than the gap between two trials."""

_MAX_LOST = 3

_UNAVAILABLE_S = 60.0
"""Seconds that Ray may take to declare a lost node dead; its actors are unavailable until then."""
_PAUSE_S = 0.5

_CHANGED = "the function differs in the process that prepares"


@dataclass(frozen=True)
class PreparationCounts:
    """Counts of a job's preparation requests and of the preparations run for them."""

    num_asked: int = 0
    num_run: int = 0


def preparation_counts() -> PreparationCounts:
    """Return the counts of this job on the connected cluster.

    They restart at 0 when the actor has exited because no process needed its data.
    """
    import ray

    with contextlib.suppress(ValueError, ray.exceptions.RayActorError):
        actor = ray.get_actor(actor_name(_NAME), namespace=NAMESPACE)
        counts: PreparationCounts = ray.get(actor.counts.remote())
        return counts
    return PreparationCounts()


@dataclass(frozen=True, eq=False)
class FetchedRows:
    """Prepared rows, which are views of an object of this node's object store."""

    reference: "ray.ObjectRef[AssembledRows]"
    assembled: AssembledRows


_collectors: list[list[FetchedRows]] = []


@contextlib.contextmanager
def collect_fetched_rows() -> Iterator[list[FetchedRows]]:
    """Collect all rows that this process fetches meanwhile."""
    fetched: list[FetchedRows] = []
    _collectors.append(fetched)
    try:
        yield fetched
    finally:
        _collectors.remove(fetched)


def prepare_on_cluster(
    preparation: Preparation, keep_s: float = _KEEP_S
) -> tuple[AssembledRows, bool]:
    """Return the rows of a preparation, which runs once for all processes of the job.

    They are read-only arrays in this node's object store. The flag says whether this call started
    the preparation.

    Raises:
        ChangedFunctionError: The function differs in the preparing processes.
        WorkloadError: The records or the function cannot be pickled.
        WorkerError: The preparation failed for a reason other than a record.
    """
    import ray

    key = preparation.key()
    lost: Exception | None = None
    num_lost = 0
    unavailable_until = time.monotonic() + _UNAVAILABLE_S
    while num_lost <= _MAX_LOST:
        try:
            return _request(key, preparation, keep_s)
        except (ray.exceptions.RayActorError, ray.exceptions.ObjectLostError) as error:
            lost = error
            is_unavailable = isinstance(error, ray.exceptions.ActorUnavailableError)
            if is_unavailable and time.monotonic() < unavailable_until:
                time.sleep(_PAUSE_S)
            else:
                num_lost += 1
    raise WorkerLostError(
        f"the process that prepares data, or its node, was lost {1 + _MAX_LOST} times: find "
        "out what ended it, such as too little memory"
    ) from lost


class PrepareActor(LeasedActor):
    """Ray actor that runs each preparation once and caches its rows for all processes.

    Rows are kept while a process that requested them is alive, and for some time longer.
    """

    def __init__(self, keep_s: float) -> None:
        super().__init__(keep_s)
        self._answers: dict[str, asyncio.Future[_Answer]] = {}
        self._num_asked = 0
        self._num_run = 0

    async def request(
        self, key: str, user: str, packed: PackedPreparation | None = None
    ) -> "_Answer | None":
        """Return the answer of a preparation once it is complete, running ``packed`` if needed.

        Returns None if there is no preparation and ``packed`` is None.
        """
        self._lease(key, user)
        is_first = key not in self._answers
        if is_first:
            if packed is None:
                return None
            self._answers[key] = asyncio.ensure_future(_answer(packed))
            self._num_run += 1
        self._num_asked += 1
        pending = self._answers[key]
        answer = await asyncio.shield(pending)
        if not answer.is_final and self._answers.get(key) is pending:
            del self._answers[key]  # a failed preparation may succeed the next time
        return replace(answer, is_first=is_first)

    async def counts(self) -> PreparationCounts:
        """Return the counts so far."""
        return PreparationCounts(self._num_asked, self._num_run)

    def _drop(self, key: str) -> None:
        self._answers.pop(key, None)


@dataclass(frozen=True, eq=False)
class _Answer:
    """Answer to a preparation request; later requests get the same if it is final."""

    rows: tuple[Any]  # a reference, in a tuple so that Ray does not resolve it
    error: str  # empty, or a failure for a reason other than a record
    is_final: bool
    is_first: bool = False  # whether this request started the preparation


async def _answer(packed: PackedPreparation) -> _Answer:
    """Run a preparation in a separate process: Ray Data hangs in an actor with an event loop.

    Ray reruns it if its process, or later the node with the data, is lost.
    """
    import ray

    run = ray.remote(num_cpus=0, num_returns=2, max_calls=1, scheduling_strategy="DEFAULT")(_run)
    outcome, rows = run.remote(packed)
    try:
        return _Answer((rows,), *(await outcome))
    except ray.exceptions.RayError as error:
        return _Answer((rows,), str(error), is_final=False)


def _run(packed: PackedPreparation) -> tuple[tuple[str, bool], AssembledRows | None]:
    """Return the failure and whether the rows are complete; and, as a separate object, the rows.

    Only processes that need the rows then fetch them.
    """
    try:
        rows = packed.run()
    except ChangedFunctionError:
        return (_CHANGED, False), None
    except Exception as error:  # noqa: BLE001  raised again by the requesting process
        error = getattr(error, "cause", error)  # the text of a RayTaskError is a long traceback
        return (f"{type(error).__name__}: {error}", False), None
    failed = rows.rows is None or (packed.stop_at_failure and bool(rows.failures))
    return ("", not failed), rows


def _request(key: str, preparation: Preparation, keep_s: float) -> tuple[AssembledRows, bool]:
    import ray

    actor, user = leased_actor(PrepareActor, _NAME, keep_s, per_node=False, max_concurrency=10_000)
    answer = ray.get(actor.request.remote(key, user))
    if answer is None:
        packed = ray.put(preparation.pack(num_cpus()))
        answer = ray.get(actor.request.remote(key, user, packed))
    if answer.error == _CHANGED:
        raise ChangedFunctionError(answer.error)
    if answer.error:
        raise WorkerError(
            f"the preparation of {len(preparation.records)} record(s) failed: {answer.error}"
        )
    (reference,) = answer.rows
    rows: AssembledRows = ray.get(reference)
    if rows.rows is not None:
        for fetched in _collectors:
            fetched.append(FetchedRows(reference, rows))
    return rows, answer.is_first
