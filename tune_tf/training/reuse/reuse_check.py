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
    metrics: Metrics
    before: "list[np.ndarray[Any, Any]]"
    after: "list[np.ndarray[Any, Any]]"
    step: float  # norm of the change of all weights


class ReuseRecord:
    """Record of the parameters of flat configs that changed since the first trial of a program."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._first = {name: repr(value) for name, value in config.items()}
        self._checked: set[str] = set()
        self._was_reused = False

    def unchecked(self, config: Mapping[str, Any]) -> list[str] | None:
        """Return the parameters that change for the first time; None if no check is due."""
        values = {name: repr(value) for name, value in config.items()}
        names = self._first.keys() | values.keys()
        changed = {name for name in names if self._first.get(name) != values.get(name)}
        unchecked = sorted(changed - self._checked)
        return unchecked if unchecked or not self._was_reused else None

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

    ``program`` is at the beginning of a trial, ``eager`` that of a fresh model of the trial, and
    ``inputs`` are those of its first epoch. With ``aggregate``, metrics and the norm of the whole
    update are compared instead of each variable, since optimizers such as Adam amplify gradients
    that are rounding errors.
    """
    try:
        with _quiet(logging.getLogger("tensorflow")):  # it warns of strategies without graphs
            plain = _run_first_batch(eager, inputs, eagerly=True)
    except tf.errors.ResourceExhaustedError:
        raise
    except Exception:  # noqa: BLE001  code that only runs in graphs; compare with a graph
        return not aggregate
    traced = _run_first_batch(program, inputs)
    if aggregate:
        metrics_differ = bool(_metric_differences(traced, plain, _EAGER_TOLERANCE))
        return metrics_differ or not np.isclose(traced.step, plain.step, 0.1, 1e-9, equal_nan=True)
    return bool(_differences(traced, plain, _EAGER_TOLERANCE))


def compare_programs(program: "Program", traced: "Program", inputs: "EpochInputs") -> list[str]:
    """Return the differences of a reused program from a new one at the beginning of a trial.

    The list is empty if the reused program gives different numbers when it is repeated.
    """
    run = _run_first_batch(program, inputs)
    differences = _differences(run, _run_first_batch(traced, inputs), _TRACED_TOLERANCE)
    is_random = bool(_differences(run, _run_first_batch(program, inputs), _TRACED_TOLERANCE))
    return [] if is_random else differences


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
) -> _BatchRun:
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


def _metric_differences(one: _BatchRun, other: _BatchRun, tolerance: float) -> list[str]:
    return [
        f"{name} is {value} instead of {other.metrics.get(name)}"
        for name, value in one.metrics.items()
        if not np.allclose(value, other.metrics.get(name, np.nan), tolerance, 1e-6, equal_nan=True)
    ]


def _differences(one: _BatchRun, other: _BatchRun, tolerance: float) -> list[str]:
    """Describe the differences beyond rounding between two runs of a batch."""
    differences = _metric_differences(one, other, tolerance)
    values = zip(one.before, one.after, other.after, strict=True)
    for number, variable_values in enumerate(values):
        precision = 1e-7 if variable_values[1].dtype.itemsize > 2 else 1e-2
        before, after, expected = (np.asarray(value, np.float64) for value in variable_values)
        if not np.all(np.isfinite(expected)) and not np.all(np.isfinite(after)):
            continue  # both diverge
        allowed = tolerance * _norm(expected - before) + 4 * precision * _norm(expected)
        if _norm(after - expected) > allowed + 1e-9:
            differences.append(f"variable {number} gets a different value")
    return differences


def _norm(value: "np.ndarray[Any, Any]") -> float:
    return float(np.linalg.norm(value.ravel()))
