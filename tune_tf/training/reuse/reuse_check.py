"""Check of a reused program against a fresh model on one batch."""

import contextlib
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import tensorflow as tf

from tune_tf.errors import WorkloadError
from tune_tf.result_keys import Metrics

if TYPE_CHECKING:
    from tune_tf.training.core.epoch import EpochInputs
    from tune_tf.training.core.program import Program

SWITCH = "TUNE_TF_REUSE_CHECK"
"""Environment variable: ``off`` for no check, ``raise`` for an error instead of a warning."""
_EAGER_TOLERANCE = 2e-3
_TRACED_TOLERANCE = 1e-5
"""Relative to the change by a batch; graphs and eager code sum in different orders."""


class _BatchRun(NamedTuple):
    metrics: "Metrics"
    before: "list[np.ndarray[Any, Any]]"
    after: "list[np.ndarray[Any, Any]]"
    step: float  # norm of the change of all weights


class ReuseRecord:
    """Record of the parameters that have changed since the first trial of a program.

    All configs are flat.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._first = {name: repr(value) for name, value in config.items()}
        self._checked: set[str] = set()
        self._was_reused = False

    def unchecked(self, config: Mapping[str, Any]) -> list[str] | None:
        """Return the parameters that change for the first time; None if no check is due."""
        values = {name: repr(value) for name, value in config.items()}
        changed = {
            name for name in self._first | values if self._first.get(name) != values.get(name)
        }
        found = sorted(changed - self._checked)
        return found if found or not self._was_reused else None

    def note(self, parameters: Sequence[str]) -> None:
        """Record that a trial with changes in these parameters passed the check."""
        self._checked.update(parameters)
        self._was_reused = True


def is_enabled() -> bool:
    """Return whether reused programs are checked."""
    return os.environ.get(SWITCH) != "off"


def differs_from_eager(
    program: "Program", eager: "Program", inputs: "EpochInputs", *, aggregate: bool = False
) -> bool:
    """Return whether a program may give other numbers than eager execution of a fresh model.

    Args:
        program: The program at the beginning of a trial.
        eager: Program of a fresh model of that trial.
        inputs: Inputs of the trial's first epoch.
        aggregate: Compare metrics and the norm of the whole update instead of each variable, since
            optimizers such as Adam amplify gradients that are rounding errors.
    """
    try:
        with _quiet(logging.getLogger("tensorflow")):  # it warns of strategies without graphs
            plain = _run_first_batch(eager, inputs, eagerly=True)
    except tf.errors.ResourceExhaustedError:
        raise
    except Exception:  # noqa: BLE001  code that only runs in graphs; compare with a graph
        return not aggregate
    ours = _run_first_batch(program, inputs)
    if aggregate:
        metrics_differ = bool(_different_metrics(ours, plain, _EAGER_TOLERANCE))
        return metrics_differ or not np.isclose(ours.step, plain.step, 0.1, 1e-9, equal_nan=True)
    return bool(_different(ours, plain, _EAGER_TOLERANCE))


def compare_programs(program: "Program", traced: "Program", inputs: "EpochInputs") -> list[str]:
    """Return the differences of a reused program from a new one at the beginning of a trial.

    The list is empty if the reused program gives different numbers when it is repeated.
    """
    outcome = _run_first_batch(program, inputs)
    found = _different(outcome, _run_first_batch(traced, inputs), _TRACED_TOLERANCE)
    repeated = _different(outcome, _run_first_batch(program, inputs), _TRACED_TOLERANCE)
    return [] if repeated else found


def difference_report(workload: str, parameters: Sequence[str], differences: Sequence[str]) -> str:
    """Format the warning about a reused program that gave different numbers.

    Raises:
        WorkloadError: ``TUNE_TF_REUSE_CHECK`` is ``raise``.
    """
    changed = f"a change of {', '.join(parameters)}" if parameters else "another trial"
    message = (
        f"A traced program of {workload} missed {changed}: {'; '.join(differences[:3])}. The trial "
        "is retraced, and so are all trials with its structure from now on. The model or "
        "train_step reads something that is not visible from outside (a file, an environment "
        "variable, an attribute by a computed name): return it from Workload.structure(config)"
    )
    if os.environ.get(SWITCH) == "raise":
        raise WorkloadError(message)
    return message


@contextlib.contextmanager
def _quiet(log: logging.Logger) -> Iterator[None]:
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


def _run_first_batch(
    program: "Program", inputs: "EpochInputs", *, eagerly: bool = False
) -> "_BatchRun":
    """Run the first batch and undo it."""
    before, weights = program.state(), _weights(program)
    try:
        metrics = program.first_batch(inputs, eagerly=eagerly)
        after = program.state()
        changes = [now - then for now, then in zip(_weights(program), weights, strict=True)]
    finally:
        program.set_state(before)
    return _BatchRun(metrics, before, after, float(np.linalg.norm([_norm(c) for c in changes])))


def _weights(program: "Program") -> "list[np.ndarray[Any, Any]]":
    return [variable.numpy() for variable in program.model.trainable_variables]


def _different_metrics(one: "_BatchRun", other: "_BatchRun", tolerance: float) -> list[str]:
    return [
        f"{name} is {value} instead of {other.metrics.get(name)}"
        for name, value in one.metrics.items()
        if not np.allclose(value, other.metrics.get(name, np.nan), tolerance, 1e-6, equal_nan=True)
    ]


def _different(one: "_BatchRun", other: "_BatchRun", tolerance: float) -> list[str]:
    """Describe the differences beyond rounding between two runs of a batch."""
    found = _different_metrics(one, other, tolerance)
    for number, (before, after, wanted) in enumerate(
        zip(one.before, one.after, other.after, strict=True)
    ):
        precision = 1e-7 if after.dtype.itemsize > 2 else 1e-2
        begun, is_, should_be = (np.asarray(v, np.float64) for v in (before, after, wanted))
        if not np.all(np.isfinite(should_be)) and not np.all(np.isfinite(is_)):
            continue  # both diverge
        allowed = tolerance * _norm(should_be - begun) + 4 * precision * _norm(should_be)
        if _norm(is_ - should_be) > allowed + 1e-9:
            found.append(f"variable {number} gets a different value")
    return found


def _norm(value: "np.ndarray[Any, Any]") -> float:
    return float(np.linalg.norm(value.ravel()))
