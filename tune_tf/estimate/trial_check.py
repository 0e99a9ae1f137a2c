"""Check of a sweep by one training batch in a process of its own."""

import contextlib
import json
import math
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import traceback
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tune_tf.data.config_reads import MISSING, ConfigReads
from tune_tf.errors import (
    ErrorDetail,
    InvalidSettingsError,
    StoreUnavailableError,
    WorkloadError,
    did_you_mean,
    message_lines,
)
from tune_tf.estimate.workload_sample import TrialSample, sample_workload
from tune_tf.objective import likely_mode
from tune_tf.result_keys import training_metrics
from tune_tf.secrets import mask_secrets
from tune_tf.space.parameter import is_number
from tune_tf.space.paths import dotted, flatten
from tune_tf.sweep import SweepPlan
from tune_tf.sweep.cluster import cluster_address
from tune_tf.trainables import trainable
from tune_tf.workload import Config, Workload

_TIMEOUT_S = 600.0
_SERVER_TIMEOUT_S = 5.0
_NUM_CONFIGS = 4  # whose reads are recorded
_TASK, _ANSWER, _OUTPUT = "task", "answer", "output"  # files of the process
_INSTALLED = (*sysconfig.get_paths().values(), str(Path(__file__).parents[1]), "<")
_REMEDIES = {
    "is outside the valid range of": "number the labels from 0, and give the last layer a unit for "
    "each class",
    "incompatible shape": "give keras.Input the shape of a row of load_data",
    "Shapes must be equal rank": "give labels and model outputs the same shape",
}
"""What to do, by a part of an error's text."""


@dataclass(frozen=True)
class TrialCheck:
    """What a trial of one batch reported, and what the workload read.

    Args:
        metrics: Metrics by name.
        read: Dotted paths of values that were read, and of groups that were read as a whole.
        missing: Dotted paths of values that were asked for and are not in the space.
        num_gpus: GPUs of this machine.
        callbacks: Names of callbacks that may add metrics, and do not run in the check.
    """

    metrics: Mapping[str, float]
    read: Sequence[str]
    missing: Sequence[str]
    num_gpus: int
    callbacks: Sequence[str] = ()


class TrialCheckProcess:
    """Process that trains one batch of a planned sweep; a context manager, which ends it."""

    def __init__(self, plan: SweepPlan) -> None:
        self._plan = plan
        self._folder = tempfile.TemporaryDirectory(prefix="tune-tf-check-")
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Ask MLflow's server, and start the process.

        Raises:
            StoreUnavailableError: MLflow's server does not respond.
        """
        from ray import cloudpickle

        config = self._plan.config
        if config.mlflow is not None:
            _check_server(config.mlflow.tracking_uri)
        folder = Path(self._folder.name)
        arguments = (self._plan.workload, self._plan.examples, config.loop, str(folder))
        (folder / _TASK).write_bytes(cloudpickle.dumps((sys.path, arguments)))
        command = [sys.executable, "-m", "tune_tf.estimate.trial_check", str(folder)]
        hidden = {"CUDA_VISIBLE_DEVICES": "-1"}  # as a trial without GPUs
        shared = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}  # the first trials run meanwhile
        environment = os.environ | (shared if self._plan.resources.gpus else hidden)
        with (folder / _OUTPUT).open("wb") as output:
            self._process = subprocess.Popen(  # noqa: S603
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
            )
        return self

    def __exit__(self, *error: object) -> None:
        """Kill the process if it runs, and delete its files."""
        with self._folder:
            if self._process is not None:
                self._process.kill()
                self._process.wait()

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end of the process; return False on timeout."""
        try:
            self._started.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def warnings(self) -> list[str]:
        """Return warnings about what the ended process found.

        Raises:
            InvalidSettingsError: A metric is not reported, a parameter is misspelt, or a GPU is not
                there.
            WorkloadError: The workload cannot train.
        """
        plan, check = self._plan, self._found()
        errors, warnings = _read_errors(plan, check)
        metric_errors = list(_metric_errors(plan, check))
        if check.callbacks:
            names = ", ".join(check.callbacks)
            warnings += [
                f"{each.where}: {each.what}; unless a callback ({names}) adds it to the logs"
                for each in metric_errors
            ]
        else:
            errors += metric_errors
        is_local = cluster_address(plan.config.cluster) is None
        if is_local and plan.resources.gpus > check.num_gpus:
            text = (
                f"is {plan.resources.gpus:g}, but this machine has {check.num_gpus}: write "
                f"`resources: {{cpus: {plan.resources.cpus}, gpus: {check.num_gpus}}}`, or connect "
                "to a Ray cluster with cluster.address"
            )
            errors.append(ErrorDetail("resources.gpus", text))
        if errors:
            raise InvalidSettingsError(errors)
        return warnings

    @property
    def _started(self) -> "subprocess.Popen[bytes]":
        if self._process is None:
            raise RuntimeError("the process was not started")
        return self._process

    def _found(self) -> TrialCheck:
        answer = Path(self._folder.name, _ANSWER)
        if not answer.exists():
            output = Path(self._folder.name, _OUTPUT).read_text(errors="replace")
            raise WorkloadError(
                f"the process that trains one batch ended with code {self._started.returncode}: "
                f"{' '.join(output.strip().splitlines()[-3:])}"
            )
        found = json.loads(answer.read_text())
        if "error" in found:
            raise WorkloadError(f"a trial of one batch failed: {found['error']}")
        return TrialCheck(**found)


def check_sweep(plan: SweepPlan) -> list[str]:
    """Train one batch of a planned sweep, and ask its MLflow server; return warnings.

    Raises:
        InvalidSettingsError: A metric is not reported, a parameter is misspelt, or a GPU is not
            there.
        WorkloadError: The workload cannot train.
        StoreUnavailableError: MLflow's server does not respond.
    """
    with TrialCheckProcess(plan) as process:
        if not process.wait(_TIMEOUT_S):
            raise WorkloadError(
                f"one batch did not train within {_TIMEOUT_S:g} s: try load_data and build_model "
                "by hand, with tune_tf.trainable(workload)(config={...}).train()"
            )
        return process.warnings()


def _check_server(uri: str) -> None:
    if not uri.startswith(("http://", "https://")):
        return
    try:
        urllib.request.urlopen(f"{uri.rstrip('/')}/health", timeout=_SERVER_TIMEOUT_S).close()  # noqa: S310
    except urllib.error.HTTPError:
        pass  # it responds
    except (OSError, ValueError) as error:
        raise StoreUnavailableError(
            f"mlflow.tracking_uri: {mask_secrets(uri)} does not respond ({error}): start the "
            "server, correct the address, or write `mlflow: null` for no tracking"
        ) from None


def train_one_batch(
    workload: Workload, configs: Sequence[Config], loop: Any, folder: str
) -> TrialCheck:
    """Record what a workload reads of some configs, and train a batch of the first one."""
    import tensorflow as tf

    from tune_tf.training.callbacks import is_custom, supported_callbacks

    read: set[str] = set()
    missing: set[str] = set()
    for config in configs[:_NUM_CONFIGS]:
        reads = ConfigReads(config)
        _read_as_a_trial(workload, reads.recording)
        for path, digest in reads.digests.items():
            (missing if digest == MISSING else read).add(".".join(map(str, path)))
    num_gpus = len(tf.config.list_physical_devices("GPU"))
    sample = sample_workload(workload, TrialSample(1, folder, cuts_datasets=True))
    callbacks = supported_callbacks(workload.callbacks(dict(configs[0])), loop)
    custom = sorted({type(each).__name__ for each in callbacks if is_custom(each)})
    result = trainable(sample, loop=loop)(config=dict(configs[0])).train()
    numbers = {
        name: float(value)
        for name, value in flatten(training_metrics(result)).items()
        if is_number(value)
    }
    return TrialCheck(numbers, sorted(read), sorted(missing), num_gpus, custom)


def _read_as_a_trial(workload: Workload, config: Config) -> None:
    """Call the methods of a workload that a trial calls with its config."""
    from tune_tf.training.input.dataset_stream import brings_batches  # late: it loads TensorFlow

    data = workload.load_data(config)
    workload.build_model(config)
    workload.callbacks(config)
    workload.shuffle(config)
    if not brings_batches(data):
        workload.global_batch_size(config)
    workload.structure(config)
    for training in (True, False):
        workload.per_example(config, training=training)


def _metric_errors(plan: SweepPlan, check: TrialCheck) -> Iterator[ErrorDetail]:
    names = sorted(check.metrics)
    wanted = [("objective", each.metric) for each in plan.config.objectives]
    wanted += [(f"constraints.{each.metric}", each.metric) for each in plan.config.constraints]
    for where, metric in wanted:
        if metric in check.metrics:
            continue
        near = did_you_mean(metric, names)
        likely = next((name for name in names if name.startswith("val_")), "loss")
        text = f"there is no metric {metric!r}{near}; the model reports {', '.join(names)}"
        if not near and where == "objective":
            text += f": write `objective: {{metric: {likely}, mode: {likely_mode(likely)}}}`"
        if metric.startswith("val_") and likely == "loss":
            text += "; load_data returns no validation rows"
        yield ErrorDetail(where, text)


def _read_errors(plan: SweepPlan, check: TrialCheck) -> tuple[list[ErrorDetail], list[str]]:
    """Return errors of misspelt parameters, and warnings of others that nothing reads."""
    errors, warnings = [], []
    configs = plan.examples[:_NUM_CONFIGS]
    sampled = {dotted(path) for config in configs for path in flatten(config)}
    for path in sorted(sampled):
        parents = [path.rpartition(".")[0]]
        while parents[-1]:
            parents.append(parents[-1].rpartition(".")[0])
        if any(each in check.read for each in (path, *parents)):
            continue
        if near := did_you_mean(path, check.missing):
            text = f"nothing reads it{near} That is what the workload asks for, without success"
            errors.append(ErrorDetail(f"space.{path}", text))
        else:
            warnings.append(f"space.{path}: the workload read it in none of {len(configs)} configs")
    return errors, warnings


def _error_text(error: Exception) -> str:
    """Return an error without values of tensors, with the line of the user's code, if any."""
    text = re.sub(r"\[\[.*\]\]", "[...]", " ".join(message_lines(str(error))))
    text += next((f": {remedy}" for part, remedy in _REMEDIES.items() if part in text), "")
    frames = traceback.extract_tb(error.__traceback__)
    own = [it for it in frames if not it.filename.startswith(_INSTALLED)]
    where = f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
    return f"{type(error).__name__}: {text}{where}"


def _main(folder: str) -> None:
    import pickle

    task, answer = Path(folder, _TASK), Path(folder, _ANSWER)
    sys.path[:], arguments = pickle.loads(task.read_bytes())  # noqa: S301  written by the parent
    try:
        with contextlib.redirect_stdout(sys.stderr):
            check = train_one_batch(*arguments)
        bad = [name for name, value in check.metrics.items() if not math.isfinite(value)]
        found: dict[str, Any] = vars(check)
        if "loss" in bad:
            found = {"error": "its loss is not finite: look for NaN in the data"}
    except Exception as error:  # noqa: BLE001  told by the parent
        found = {"error": _error_text(error)}
    answer.write_text(json.dumps(found))


if __name__ == "__main__":
    _main(sys.argv[1])
