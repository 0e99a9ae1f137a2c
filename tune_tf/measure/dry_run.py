"""Dry run: a check of a sweep by one training batch in a process of its own."""

import itertools
import math
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tune_tf.data.config_reads import MISSING, ConfigReads
from tune_tf.errors import (
    ErrorDetail,
    InvalidSettingsError,
    StoreUnavailableError,
    WorkloadError,
    did_you_mean,
)
from tune_tf.measure.child_process import ChildProcess
from tune_tf.measure.sample import sample_workload
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


class DryRunProcess(ChildProcess):
    """Process that trains one batch of a planned sweep; a context manager, which ends it.

    Raises:
        StoreUnavailableError: MLflow's server does not respond.
    """

    def __init__(self, plan: SweepPlan) -> None:
        if plan.config.mlflow is not None:
            _check_server(plan.config.mlflow.tracking_uri)
        super().__init__(
            "a trial of one batch",
            _train_one_batch,
            plan.workload,
            plan.examples,
            plan.config.loop,
            uses_gpus=plan.resources.gpus > 0,
        )
        self._plan = plan

    def warnings(self) -> list[str]:
        """Return warnings about what the ended process found.

        Raises:
            InvalidSettingsError: A metric is not reported, a parameter is misspelt, or a GPU is not
                there.
            WorkloadError: The workload cannot train.
        """
        plan, check = self._plan, TrialCheck(**self.result())
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


def check_sweep(plan: SweepPlan) -> list[str]:
    """Train one batch of a planned sweep, and ask its MLflow server; return warnings.

    Raises:
        InvalidSettingsError: A metric is not reported, a parameter is misspelt, or a GPU is not
            there.
        WorkloadError: The workload cannot train.
        StoreUnavailableError: MLflow's server does not respond.
    """
    with DryRunProcess(plan) as process:
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


def _train_one_batch(workload: Workload, configs: Sequence[Config], loop: Any) -> dict[str, Any]:
    """Record what a workload reads of some configs, and train a batch of the first one.

    Returns the arguments of a :class:`TrialCheck`.
    """
    import tensorflow as tf

    from tune_tf.training.callbacks import is_custom, supported_callbacks

    read: set[str] = set()
    missing: set[str] = set()
    for config in configs:
        reads = ConfigReads(config)
        _read_as_a_trial(workload, reads.recording)
        for path, digest in reads.digests.items():
            (missing if digest == MISSING else read).add(".".join(map(str, path)))
    num_gpus = len(tf.config.list_physical_devices("GPU"))
    sample = sample_workload(workload, max_batches=1)
    callbacks = supported_callbacks(workload.callbacks(dict(configs[0])), loop)
    custom = sorted({type(each).__name__ for each in callbacks if is_custom(each)})
    result = trainable(sample, loop=loop)(config=dict(configs[0])).train()
    metrics = {
        name: float(value)
        for name, value in flatten(training_metrics(result)).items()
        if is_number(value)
    }
    if not math.isfinite(metrics.get("loss", 0.0)):
        raise WorkloadError("its loss is not finite: look for NaN in the data")
    return asdict(TrialCheck(metrics, sorted(read), sorted(missing), num_gpus, custom))


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
    errors, warnings, read = [], [], set(check.read)
    for path in sorted({dotted(path) for config in plan.examples for path in flatten(config)}):
        if read.intersection(itertools.accumulate(path.split("."), "{}.{}".format)):
            continue  # by itself, or with a group
        if near := did_you_mean(path, check.missing):
            text = f"nothing reads it{near} That is what the workload asks for, without success"
            errors.append(ErrorDetail(f"space.{path}", text))
        else:
            num = len(plan.examples)
            warnings.append(f"space.{path}: the workload read it in none of {num} configs")
    return errors, warnings
