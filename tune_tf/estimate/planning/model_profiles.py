"""Profiles of the models of a search space, built without training."""

import contextlib
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tune_tf.errors import WorkloadError, first_line
from tune_tf.estimate.extreme_configs import (
    extreme_config,
    extreme_values,
    fill_with_middle,
    middle_value,
)
from tune_tf.result_keys import NOT_SHARED, WEIGHTS_DIFFER
from tune_tf.space import Float, SearchSpace, flatten
from tune_tf.space.paths import nest
from tune_tf.workload import Config, Workload

_NUM_RANDOM = 12
_ENOUGH_S = 30.0  # of building, after which further random models are skipped
_BYTES = 4

Difference = Literal["value", "lowest"]


@dataclass(frozen=True)
class ModelProfile:
    """Size and cost of a built model.

    Args:
        num_parameters: Number of weights, including non-trainable ones.
        state_bytes: Bytes of weights and optimizer slots, the content of a checkpoint.
        work: Approximate number of multiplications per row.
        activation_bytes: Bytes of the outputs of all layers for one row.
        key: Key shared by models with the same traced program; None if none can be shared.
        frozen_row_bytes: Bytes of the outputs of frozen layers for one row; None if not shared.
        frozen_layers: What shared outputs save, or why they are not shared; empty without any.
    """

    config: dict[str, Any]
    num_parameters: int
    state_bytes: int
    work: float
    activation_bytes: float
    batch_size: int
    key: str | None
    frozen_row_bytes: int | None = None
    frozen_layers: str = ""

    @property
    def size(self) -> float:
        """Score that grows with the memory and time of a trial."""
        memory = 2 * self.state_bytes + 2 * self.batch_size * self.activation_bytes
        return math.log1p(memory) + math.log1p(self.work)


@dataclass(frozen=True)
class ModelProfiles:
    """Profiles of the models of a search space.

    Args:
        structural: Parameters that select the traced program of a trial, by path: ``"value"`` if
            each value has its own program, ``"lowest"`` if only the lowest value has, such as a
            dropout of 0.
        shares: Whether trials share traced programs at all.
        broken: Config and error of each random model that could not be built.
        frozen_obstacle: Why no trials share outputs of frozen layers, whatever their shapes.
    """

    smallest: ModelProfile
    largest: ModelProfile
    random: tuple[ModelProfile, ...]
    structural: Mapping[str, Difference]
    shares: bool
    broken: tuple[str, ...] = ()
    frozen_obstacle: str = ""

    @property
    def known(self) -> tuple[ModelProfile, ...]:
        """All profiles."""
        return (self.smallest, self.largest, *self.random)


def profile_models(
    space: SearchSpace,
    build_profile: Callable[[Config], ModelProfile],
    *,
    seed: int,
    clock: Callable[[], float] = time.monotonic,
) -> ModelProfiles:
    """Profile the smallest, the largest and random models of a search space.

    Raises:
        WorkloadError: The model of an extreme config cannot be built; names the config.
    """
    start = clock()
    profiles: dict[str, ModelProfile] = {}

    def profile_of(config: Config) -> ModelProfile:
        name = repr(sorted(flatten(config).items()))
        if name not in profiles:
            try:
                profiles[name] = build_profile(config)
            except Exception as error:
                raise WorkloadError(
                    "cannot build the model of an extreme config of the space, "
                    f"{_failure_text(config, error)}; narrow the space"
                ) from error
        return profiles[name]

    def size_of(config: Config) -> float:
        return profile_of(config).size

    smallest, largest = (
        profile_of(extreme_config(space, size_of, largest=largest)) for largest in (False, True)
    )
    structural = {
        path: difference
        for path in space.parameters
        if (difference := _difference(space, path, profile_of)) is not None
    }
    rng = np.random.default_rng(seed)
    random: list[ModelProfile] = []
    broken: list[str] = []
    for number in range(_NUM_RANDOM):
        if number >= 2 and clock() - start > _ENOUGH_S:
            break
        config = space.sample(rng)
        try:
            random.append(build_profile(config))
        except Exception as error:  # noqa: BLE001  the workload's own code may raise anything
            broken.append(_failure_text(config, error))
    return ModelProfiles(
        smallest,
        largest,
        tuple(random),
        structural,
        shares=all(each.key is not None for each in profiles.values()),
        broken=tuple(broken),
    )


def _difference(
    space: SearchSpace, path: str, profile_of: Callable[[Config], ModelProfile]
) -> Difference | None:
    """Return how a parameter selects the traced program, all others being in the middle."""
    parameter = space.parameters[path]

    def keys(values: list[Any]) -> set[str | None]:
        configs = (fill_with_middle(space, {path: value}) for value in values)
        return {profile_of(nest(each)).key for each in configs if path in each}

    if not isinstance(parameter, Float):
        return "value" if len(keys(extreme_values(parameter))) > 1 else None
    middle = middle_value(parameter)
    if len(keys([middle, parameter.high])) > 1:
        return "value"
    # Without a step, a trial almost never draws exactly the lowest value.
    return "lowest" if parameter.step and len(keys([parameter.low, middle])) > 1 else None


def config_text(config: Config) -> str:
    """Format a config as readable text."""
    return ", ".join(f"{path}={value!r}" for path, value in flatten(config).items())


def _failure_text(config: Config, error: Exception) -> str:
    return f"{config_text(config)}: {type(error).__name__}: {first_line(error)}"


def profile_workload_models(
    workload: Workload, space: SearchSpace, seed: int, building_file: Path
) -> ModelProfiles:
    """Profile the models of a workload in this process, which loads TensorFlow.

    The config being built is written to ``building_file``, in case this process dies.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # nothing is trained here
    from tune_tf.tracking.trial_run import throwaway_run
    from tune_tf.training.build import build_for_checkpoint

    def build_profile(config: Config) -> ModelProfile:
        with contextlib.suppress(OSError):  # the folder is missing on other machines
            building_file.write_text(config_text(config))
        return _profile(workload, config, build_for_checkpoint(workload, config, seed=0))

    with throwaway_run():
        profiles = profile_models(space, build_profile, seed=seed)
        shared = [each for each in profiles.known if each.frozen_row_bytes is not None]
        if shared and _frozen_weights_follow_seed(workload, shared[0].config):
            profiles = replace(profiles, frozen_obstacle=WEIGHTS_DIFFER)
        return profiles


def _frozen_weights_follow_seed(workload: Workload, config: Config) -> bool:
    from tune_tf.training.build import build_for_checkpoint
    from tune_tf.training.frozen.frozen_layers import find_frozen_layers

    models = (build_for_checkpoint(workload, config, seed) for seed in (0, 1))
    layers = [find_frozen_layers(model, math.inf) for model in models]
    values = ([variable.numpy() for variable in each.weights] for each in layers)
    return not all(map(np.array_equal, *values))


def _profile(workload: Workload, config: Config, model: Any) -> ModelProfile:
    from tune_tf.training.scalars import scalars_of
    from tune_tf.training.structure import structure_of
    from tune_tf.training.system_metrics import leaf_layers, multiplications_per_row, output_shape

    batch_size = workload.global_batch_size(config)
    frozen_row_bytes, frozen_layers = _frozen_layers(model)
    shapes = [output_shape(layer) for layer in leaf_layers(model)]
    variables = [*model.variables, *model.optimizer.variables]
    return ModelProfile(
        config=dict(config),
        num_parameters=int(model.count_params()),
        state_bytes=sum(_BYTES * math.prod(variable.shape) for variable in variables),
        work=multiplications_per_row(model),
        activation_bytes=float(sum(_BYTES * math.prod(shape[1:]) for shape in shapes if shape)),
        batch_size=batch_size,
        key=structure_of([model, repr(batch_size)], scalars_of(model)).key,
        frozen_row_bytes=frozen_row_bytes,
        frozen_layers=frozen_layers,
    )


def _frozen_layers(model: Any) -> tuple[int | None, str]:
    """Return the bytes of a row's shared outputs and what they save; or None and why not."""
    from tune_tf.training.frozen.frozen_layers import (
        NotSharedError,
        find_frozen_layers,
        has_frozen_layers,
    )

    try:
        layers = find_frozen_layers(model, math.inf)
    except NotSharedError as reason:
        return None, f"{NOT_SHARED}{reason}" if has_frozen_layers(model) else ""
    return layers.row_bytes, str(layers)
