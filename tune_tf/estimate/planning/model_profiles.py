"""What models a search space holds: built, and not trained."""

import contextlib
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tune_tf.errors import WorkloadError
from tune_tf.estimate.extreme_configs import completed, corner, ends, middle_value
from tune_tf.space import Float, SearchSpace, flat
from tune_tf.space.paths import nested
from tune_tf.workload import Config, Workload

_NUM_DRAWN = 12
_ENOUGH_S = 30.0  # of building; then the rest of the draws is left out
_BYTES = 4

Difference = Literal["value", "lowest"]


@dataclass(frozen=True)
class ModelProfile:
    """A model that was built.

    Args:
        config: The trial's values, nested.
        num_parameters: Weights, those that are not trained too.
        state_bytes: Of weights and optimizer slots, which a checkpoint holds.
        work: About how many multiplications a row takes.
        activation_bytes: Of all layers' outputs of one row.
        batch_size: Rows of a global batch.
        key: Equal for models that one traced program serves; None where none can be shared.
    """

    config: dict[str, Any]
    num_parameters: int
    state_bytes: int
    work: float
    activation_bytes: float
    batch_size: int
    key: str | None

    @property
    def size(self) -> float:
        """Grows with the memory and the time that a trial takes."""
        memory = 2 * self.state_bytes + 2 * self.batch_size * self.activation_bytes
        return math.log1p(memory) + math.log1p(self.work)


@dataclass(frozen=True)
class ModelProfiles:
    """The models of a search space.

    Args:
        smallest: As far as corners tell.
        largest: As far as corners tell.
        drawn: Models of random configs.
        structural: Parameters that decide which traced program serves a trial, by path: by each of
            their values, or only by whether it is the lowest, such as no dropout at all.
        shares: Whether trials share programs at all.
        num_broken: Random configs whose model could not be built.
        broken: Why the first of these could not be.
    """

    smallest: ModelProfile
    largest: ModelProfile
    drawn: tuple[ModelProfile, ...]
    structural: Mapping[str, Difference]
    shares: bool
    num_broken: int = 0
    broken: str = ""

    @property
    def known(self) -> tuple[ModelProfile, ...]:
        """All of them."""
        return (self.smallest, self.largest, *self.drawn)


def profile_models(
    space: SearchSpace,
    facts_of: Callable[[Config], ModelProfile],
    *,
    seed: int,
    clock: Callable[[], float] = time.monotonic,
) -> ModelProfiles:
    """Look for the smallest and the largest model of a space, and at random ones.

    Args:
        space: What may be searched.
        facts_of: Builds a model.
        seed: Of the draws.
        clock: Seconds that only grow.

    Raises:
        WorkloadError: A model at a corner cannot be built; tells the config.
    """
    begun = clock()
    known: dict[str, ModelProfile] = {}

    def facts(config: Config) -> ModelProfile:
        name = repr(sorted(flat(config).items()))
        if name not in known:
            try:
                known[name] = facts_of(config)
            except Exception as error:
                raise WorkloadError(
                    "the model of a config at a corner of the space cannot be built, "
                    f"{config_text(config)}: {type(error).__name__}: {_first_line(error)}; narrow "
                    "the space"
                ) from error
        return known[name]

    def size_of(config: Config) -> float:
        return facts(dict(config)).size

    smallest, largest = (
        facts(corner(space, size_of, largest=largest)) for largest in (False, True)
    )
    structural = {
        path: difference
        for path in space.parameters
        if (difference := _difference(space, path, facts)) is not None
    }
    rng = np.random.default_rng(seed)
    drawn: list[ModelProfile] = []
    broken: list[str] = []
    for number in range(_NUM_DRAWN):
        if number >= 2 and clock() - begun > _ENOUGH_S:
            break
        config = space.sample(rng)
        try:
            drawn.append(facts_of(config))
        except Exception as error:  # noqa: BLE001  the workload's own code may raise anything
            broken.append(f"{config_text(config)}: {type(error).__name__}: {_first_line(error)}")
    return ModelProfiles(
        smallest,
        largest,
        tuple(drawn),
        structural,
        shares=all(each.key is not None for each in known.values()),
        num_broken=len(broken),
        broken=broken[0] if broken else "",
    )


def _difference(
    space: SearchSpace, path: str, facts: Callable[[Config], ModelProfile]
) -> Difference | None:
    """Return how a parameter decides about the program, with the others in the middle."""
    parameter = space.parameters[path]

    def keys(values: list[Any]) -> set[str | None]:
        configs = (completed(space, {path: value}) for value in values)
        return {facts(nested(each)).key for each in configs if path in each}

    if not isinstance(parameter, Float):
        return "value" if len(keys(ends(parameter))) > 1 else None
    middle = middle_value(parameter)
    if len(keys([middle, parameter.high])) > 1:
        return "value"
    # Of a range without steps no trial draws just the end.
    return "lowest" if parameter.step and len(keys([parameter.low, middle])) > 1 else None


def config_text(config: Config) -> str:
    """Return a config as a reader takes it in."""
    return ", ".join(f"{path}={value!r}" for path, value in flat(config).items())


def _first_line(error: BaseException) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), "no text")


def profile_models_here(
    workload: Workload, space: SearchSpace, seed: int, notes: str
) -> ModelProfiles:
    """Build models in this process, which loads TensorFlow for it.

    Args:
        workload: Whose models.
        space: What may be searched.
        seed: Of the draws.
        notes: File that holds what is being built, for the case that this process dies of it.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # nothing is trained here
    from tune_tf.tracking.trial_run import throwaway_run
    from tune_tf.training.core.build import build_to_load

    def facts_of(config: Config) -> ModelProfile:
        with contextlib.suppress(OSError):  # on another machine there is no such folder
            Path(notes).write_text(config_text(config))
        return _facts(workload, config, build_to_load(workload, config, seed=0))

    with throwaway_run():
        return profile_models(space, facts_of, seed=seed)


def _facts(workload: Workload, config: Config, model: Any) -> ModelProfile:
    from tune_tf.training.core.scalars import scalars_of
    from tune_tf.training.core.structure import structure_of

    batch_size = workload.global_batch_size(config)
    shapes = [(layer, _output_shape(layer)) for layer in _layers(model)]
    variables = [*model.variables, *model.optimizer.variables]
    return ModelProfile(
        config=dict(config),
        num_parameters=int(model.count_params()),
        state_bytes=sum(_BYTES * math.prod(variable.shape) for variable in variables),
        work=float(
            sum(layer.count_params() * math.prod(shape[1:-1]) for layer, shape in shapes if shape)
        ),
        activation_bytes=float(sum(_BYTES * math.prod(shape[1:]) for _, shape in shapes if shape)),
        batch_size=batch_size,
        key=structure_of(workload, model, scalars_of(model), config, batch_size).key,
    )


def _layers(model: Any) -> list[Any]:
    """Return the layers that hold weights or outputs themselves, not those that hold layers."""
    found = []
    for layer in model.layers:
        inner = getattr(layer, "layers", None)
        found += _layers(layer) if inner else [layer]
    return found


def _output_shape(layer: Any) -> tuple[int, ...]:
    """Return the shape of a layer's output for one row; empty where it is not known before."""
    try:
        shape = layer.output.shape
    except (AttributeError, ValueError):  # it was not called with symbols, or more than once
        return ()
    return tuple(1 if side is None else int(side) for side in shape)
