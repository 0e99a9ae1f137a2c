"""Costs of a sweep: its smallest and largest model, measured, and upper bounds of the whole."""

import contextlib
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from tune_tf.config import SweepConfig
from tune_tf.errors import WorkloadError
from tune_tf.measure.child_process import ChildProcess
from tune_tf.measure.extreme_configs import config_text, largest_config
from tune_tf.measure.sample import sample_workload
from tune_tf.measure.trial_costs import TrialCosts, costs_process
from tune_tf.space import SearchSpace
from tune_tf.sweep import SweepPlan, plan_sweep
from tune_tf.sweep.callbacks.checkpoint_retention import KEPT_CHECKPOINTS
from tune_tf.sweep.cluster import cluster
from tune_tf.workload import Config, Workload

_PROCESS_BYTES = 1e9  # of a process with TensorFlow, without the model
_MAX_AT_ONCE = 8


@dataclass(frozen=True)
class ModelCosts:
    """Size and measured costs of the model of a config.

    Args:
        label: Which model of the space it is.
        config: Its config.
        num_parameters: Weights, including those that do not train.
        num_at_once: Trials that were measured at once.
        costs: Costs of the slowest one of these.
    """

    label: str
    config: Mapping[str, Any]
    num_parameters: int
    num_at_once: int
    costs: TrialCosts


@dataclass(frozen=True)
class SweepCosts:
    """Measured costs of the smallest and the largest model, and upper bounds of a sweep.

    The bounds hold for trials that do not fail and start again, on this machine.

    Args:
        models: The smallest and the largest model; the latter twice if batches differ in size.
        num_at_once: Concurrent trials.
        epochs: Epochs of all trials.
        time_s: Seconds of all trials, if each is the slowest one in a fresh process.
        memory_bytes: Host memory of concurrent trials; None if unknown.
        disk_bytes: Bytes of checkpoints while trials run.
        end_disk_bytes: Bytes of checkpoints at the end.
    """

    models: tuple[ModelCosts, ...]
    num_at_once: int
    epochs: int
    time_s: float
    memory_bytes: float | None
    disk_bytes: int
    end_disk_bytes: int

    @classmethod
    def of(
        cls,
        config: SweepConfig,
        models: Sequence[ModelCosts],
        *,
        num_at_once: int,
    ) -> "SweepCosts":
        """Return the costs for so many concurrent trials."""
        costs = [each.costs for each in models]
        budget, max_epochs = config.budget, config.epochs
        num_trials, epochs = budget.num_samples, budget.num_samples * max_epochs
        epoch_s = max(each.epoch_s for each in costs)
        trial_s = max(each.start_s for each in costs) + max_epochs * epoch_s
        time_s = math.ceil(num_trials / num_at_once) * trial_s
        # What runs when a limit is reached ends after its epoch.
        if budget.time_budget_s is not None:
            time_s = min(time_s, budget.time_budget_s + epoch_s)
        if budget.epochs is not None:
            epochs = min(epochs, budget.epochs + num_at_once)
        states = 1 if config.keep_best is None else 2  # beside the last epoch, the best one
        trial_bytes = states * max(each.checkpoint_bytes for each in costs)
        trial_bytes *= min(KEPT_CHECKPOINTS, max_epochs)
        kept = num_trials if config.keep_checkpoints == "all" else config.keep_checkpoints
        peaks = [each.memory_bytes for each in costs if each.memory_bytes is not None]
        return cls(
            tuple(models),
            num_at_once,
            epochs,
            time_s,
            num_at_once * max(peaks) if peaks else None,
            num_trials * trial_bytes,
            min(kept, num_trials) * trial_bytes,
        )


def measure_sweep(config: SweepConfig, *, base_dir: Path | None = None) -> SweepCosts:
    """Measure the smallest and the largest model of a sweep, and bound what the sweep takes.

    They train for some epochs on this machine. Without a connected Ray cluster, one is started and
    stopped afterwards. The workload's path is relative to ``base_dir``, by default the working
    directory.

    Raises:
        WorkloadError: The workload fails, or a model cannot be built or trained.
        InvalidSettingsError: The settings are invalid.
        UnavailableResourcesError: No machine has the resources for a trial.
    """
    base_dir = base_dir or Path.cwd()
    with cluster(config.cluster, base_dir):
        plan = plan_sweep(config, base_dir=base_dir)
        what = "the search for the smallest and the largest model"
        with ChildProcess(what, _find_extremes, plan.workload, config.space) as process:
            found = process.result()
        models = [_measure(plan, label, *each) for label, each in found.items()]
    return SweepCosts.of(plan.config, models, num_at_once=plan.max_concurrent_trials)


def _measure(plan: SweepPlan, label: str, config: Config, num_parameters: int) -> ModelCosts:
    """Train a model in some processes at once, which slow each other as trials will."""
    num = 1
    if label != "smallest" and not plan.resources.gpus and not plan.config.parallelism.in_processes:
        free_bytes = psutil.virtual_memory().available
        num = min(plan.max_concurrent_trials, _MAX_AT_ONCE, int(free_bytes // _PROCESS_BYTES))
    plan = replace(plan, workload=sample_workload(plan.workload))
    what = f"a trial of the {label} model, {config_text(config)},"
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(costs_process(what, plan, config)) for _ in range(max(1, num))
        ]
        costs: list[TrialCosts] = [process.result() for process in processes]
    slowest = max(costs, key=lambda each: each.epoch_s)
    return ModelCosts(label, config, num_parameters, len(processes), slowest)


def _find_extremes(workload: Workload, space: SearchSpace) -> dict[str, tuple[Config, int]]:
    """Return the smallest and the largest config and their numbers of parameters, by label.

    Of largest models whose batches differ in size, there is one for memory and one for time.
    """
    from tune_tf.tracking.trial_run import throwaway_run
    from tune_tf.training.build import build_for_checkpoint

    known: dict[str, tuple[float, int]] = {}

    def size_of(config: Config) -> tuple[float, int]:
        text = config_text(config)
        if text not in known:
            sys.stderr.write(f"building {text}\n")  # for the error if this process is killed
            try:
                model = build_for_checkpoint(workload, config, seed=0)
            except Exception as error:
                raise WorkloadError(f"the model of {text} cannot be built: {error}") from error
            variables = [*model.variables, *model.optimizer.variables]
            num_numbers = sum(math.prod(variable.shape) for variable in variables)
            score = math.log1p(num_numbers) + math.log1p(_num_outputs(model))
            known[text] = score, model.count_params()
        return known[text]

    batch_size = workload.global_batch_size
    with throwaway_run():
        found = {
            "largest": largest_config(space, lambda it: (size_of(it)[0], batch_size(it))),
            "largest, smallest batch": largest_config(
                space, lambda it: (size_of(it)[0], -batch_size(it))
            ),
            "smallest": largest_config(space, lambda it: (-size_of(it)[0], -batch_size(it))),
        }
        unique = {config_text(config): label for label, config in reversed(found.items())}
        return {label: (found[label], size_of(found[label])[1]) for label in unique.values()}


def _num_outputs(model: Any) -> int:
    """Return the numbers that the layers of a model return for a row, as far as known."""
    total = 0
    for layer in model.layers:
        with contextlib.suppress(AttributeError, ValueError):  # never called symbolically
            total += math.prod(side or 1 for side in layer.output.shape[1:])
    return total
