"""The table of endings, as it is written in the design."""

import math

import pytest

from tune_tf.outcome import STOP_REASON, Outcome, is_finite

TABLE = [
    ("completed", "TERMINATED", "COMPLETE", "FINISHED"),
    ("pruned", "TERMINATED", "PRUNED", "KILLED"),
    ("out_of_budget", "TERMINATED", "PRUNED", "KILLED"),
    ("diverged", "TERMINATED", "FAIL", "FAILED"),
    ("oom", "ERROR", "FAIL", "FAILED"),
    ("error", "ERROR", "FAIL", "FAILED"),
    ("interrupted", "RUNNING", "RUNNING", "KILLED"),
]


@pytest.mark.parametrize(("tag", "tune", "optuna", "mlflow"), TABLE, ids=[row[0] for row in TABLE])
def test_each_end_has_one_state_in_each_of_the_three_systems(tag, tune, optuna, mlflow):
    outcome = Outcome(tag)
    assert (outcome.tune, outcome.optuna, outcome.mlflow) == (tune, optuna, mlflow)
    assert Outcome.of_result({STOP_REASON: tag}) is outcome


def test_the_table_has_all_ends_in_states_that_optuna_has():
    optuna = pytest.importorskip("optuna")
    assert [outcome.value for outcome in Outcome] == [row[0] for row in TABLE]
    assert {outcome.optuna for outcome in Outcome} <= set(optuna.trial.TrialState.__members__)


@pytest.mark.parametrize("result", [None, {}, {"val_loss": 1.0}, {STOP_REASON: None}])
def test_a_result_without_a_reason_has_no_outcome(result):
    assert Outcome.of_result(result) is None


def test_only_numbers_are_finite():
    assert all(map(is_finite, [0, 1.5, -3, True]))
    assert not any(map(is_finite, [math.nan, math.inf, -math.inf, None, "1.5", [1.0]]))


def test_what_rays_memory_monitor_ended_ran_out_of_memory():
    error = "worker 1 died: 1 worker(s) were killed due to the node running low on memory."
    assert Outcome.of_error(error) is Outcome.OOM
    assert Outcome.of_error("common causes: killed by the OOM killer") is Outcome.ERROR


@pytest.mark.parametrize(
    "error",
    [
        "InternalError: No blas support for stream [Op:MatMul]",  # seen on an H100
        "Attempting to perform BLAS operation using StreamExecutor without BLAS support",
        "failed to create cublas handle: the resource allocation failed",
        "CUBLAS_STATUS_ALLOC_FAILED",
        "Could not create cudnn handle: CUDNN_STATUS_NOT_INITIALIZED",
        "This is probably because cuDNN failed to initialize",
        "failed call to cuInit: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
        "Dst tensor is not initialized.",
        "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1234 bytes.",
    ],
)
def test_a_gpu_without_memory_for_its_libraries_ran_out_of_memory(error):
    assert Outcome.of_error(error) is Outcome.OOM
