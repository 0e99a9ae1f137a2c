"""Epoch loop for models that are split into stages."""

from typing import Any

import tensorflow as tf

from tune_tf.errors import WorkloadError
from tune_tf.parallelism import Hybrid, ModelParallel
from tune_tf.training.core.batch_norm import (
    batch_norms,
    warn_of_local_statistics,
    warn_of_micro_batches,
)
from tune_tf.training.core.build import build_model
from tune_tf.training.core.loop import GraphLoop
from tune_tf.training.core.program import BatchSettings, Program
from tune_tf.training.core.scalars import Scalar, scalars_of
from tune_tf.training.input.device_rows import DeviceRows
from tune_tf.training.reuse.fingerprint import Fingerprint
from tune_tf.training.stages.model_graph import calls_of
from tune_tf.training.stages.stage_devices import StageDevices
from tune_tf.training.stages.stage_plan import stage_plan
from tune_tf.training.stages.stage_program import StageProgram
from tune_tf.workload import Config, Workload


class StageLoop(GraphLoop):
    """Loop whose epochs are single graph calls over replicas and stages.

    A trial's model is built on the host, which has room for it. The model that trains is built once
    per structure, with its variables on the devices of their stages.
    """

    def __init__(
        self, workload: Workload, grid: StageDevices, spread: ModelParallel | Hybrid
    ) -> None:
        super().__init__(workload, grid)
        self._grid = grid
        self._micro_batches = spread.micro_batches
        self._seed = 0  # of the last build
        self._created: list[tf.Variable] = []  # variables of the last build, in order

    @property
    def _can_check_reuse(self) -> bool:
        return False

    def _build(self, config: Config, seed: int, rows: DeviceRows) -> Any:
        self._seed = seed
        with self._workload_state.building(self._workload, self):
            model, self._created = self._grid.build(
                lambda: build_model(self._workload, config, self._grid, seed, rows.sample[0])
            )
        synchronized = [layer.name for layer in batch_norms(model) if layer.synchronized]
        if synchronized and self._grid.num_replicas > 1:
            raise WorkloadError(
                f"{', '.join(synchronized)}: BatchNormalization with synchronized=True cannot be "
                f"kept equal over {self._grid.num_replicas} replicas that are cut into stages: use "
                "kind 'mirrored' or 'model_parallel', or LayerNormalization"
            )
        warn_of_local_statistics(model, self._grid.num_replicas)
        warn_of_micro_batches(model, self._micro_batches)
        return model

    def _make_program(
        self,
        model: Any,
        scalars: list[Scalar],
        config: Config,
        rows: DeviceRows,
        found: Fingerprint,
    ) -> Program:
        self.num_programs += 1
        calls = calls_of(model)
        plan = stage_plan(calls, self._grid.num_stages, self._workload.stage_of)
        stages = {
            id(variable.value): stage
            for call, stage in zip(calls, plan, strict=True)
            for variable in getattr(call.operation, "variables", ())
        }
        numbers = [stages.get(id(variable), 0) for variable in self._created]
        copies = [
            self._grid.build(
                lambda: build_model(self._workload, config, self._grid, self._seed, rows.sample[0]),
                [row[number] for number in numbers],
            )[0]
            for row in self._grid.rows
        ]
        return StageProgram(
            self._workload,
            copies,
            self._grid,
            plan,
            BatchSettings(
                rows.sample,
                rows.num_train,
                rows.num_validation,
                self._workload.global_batch_size(config),
                micro_batches=self._micro_batches,
                per_example=rows.per_example,
            ),
            variables=self._structure(copies[0], scalars, config, rows).variables,
            scalars=scalars_of(copies[0]) if scalars else [],
        )
