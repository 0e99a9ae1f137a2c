"""Builder of models that are split into stages."""

import keras
import tensorflow as tf

from tune_tf.errors import WorkloadError
from tune_tf.parallelism import Hybrid, ModelParallel
from tune_tf.training.core.build import (
    batch_norms,
    build_model,
    warn_of_inexact_norms,
)
from tune_tf.training.core.loop import GraphLoop
from tune_tf.training.core.program_cache import ProgramCache
from tune_tf.training.core.replicas import Replicas
from tune_tf.training.input.device_rows import DeviceRows
from tune_tf.training.stages.stage_devices import StageDevices
from tune_tf.training.stages.stage_plan import calls_of, stage_plan
from tune_tf.training.stages.stage_step import StageStep
from tune_tf.workload import Config, Workload


def stage_loop(
    workload: Workload, grid: StageDevices, parallelism: ModelParallel | Hybrid
) -> GraphLoop:
    """Return a loop whose epochs are single graph calls over replicas and stages."""
    programs = ProgramCache(workload, StageBuilder(workload, grid, parallelism.micro_batches))
    return GraphLoop(workload, grid, programs=programs)


class StageBuilder:
    """Builder of models on the host, and of steps that train copies of them in stages.

    The host has room for each trial's model. The copies are built once per structure, with their
    variables on the devices of their stages.
    """

    def __init__(self, workload: Workload, grid: StageDevices, micro_batches: int) -> None:
        self._workload = workload
        self.replicas: Replicas = grid
        self._grid = grid
        self._micro_batches = micro_batches
        self._seed = 0  # of the last build
        self._created: list[tf.Variable] = []  # variables of the last build, in order

    def build(self, config: Config, seed: int, rows: DeviceRows) -> keras.Model:
        """Return a trial's fresh model, on the host.

        Raises:
            WorkloadError: The replicas cannot synchronize their statistics.
        """
        grid, self._seed = self._grid, seed
        model, self._created = grid.build(
            lambda: build_model(self._workload, config, grid, seed, rows.sample[0])
        )
        synchronized = [layer.name for layer in batch_norms(model) if layer.synchronized]
        if synchronized and grid.num_replicas > 1:
            raise WorkloadError(
                f"{', '.join(synchronized)}: BatchNormalization with synchronized=True cannot be "
                f"kept equal over {grid.num_replicas} replicas that are cut into stages: use kind "
                "'mirrored' or 'model_parallel', or LayerNormalization"
            )
        warn_of_inexact_norms(model, grid.num_replicas, self._micro_batches)
        return model

    def step(self, model: keras.Model, config: Config, rows: DeviceRows) -> StageStep:
        """Return a step that trains copies of the model that was built last.

        Raises:
            WorkloadError: The model cannot be cut into stages.
        """
        grid = self._grid
        calls = calls_of(model)
        plan = stage_plan(calls, grid.num_stages, self._workload.stage_of)
        stages = {
            id(variable.value): stage
            for call, stage in zip(calls, plan, strict=True)
            for variable in getattr(call.operation, "variables", ())
        }
        numbers = [stages.get(id(variable), 0) for variable in self._created]
        copies = [
            grid.build(
                lambda: build_model(self._workload, config, grid, self._seed, rows.sample[0]),
                [row[number] for number in numbers],
            )[0]
            for row in grid.rows
        ]
        return StageStep(self._workload, copies, grid, plan, self._micro_batches)
