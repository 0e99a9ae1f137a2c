"""Devices of models that are split into stages, and the builder of such models."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from tune_tf.errors import WorkloadError
from tune_tf.parallelism import Hybrid, ModelParallel
from tune_tf.training.build import batch_norms, build_model, warn_of_inexact_norms
from tune_tf.training.devices import Devices
from tune_tf.training.epoch import TrialInputs
from tune_tf.training.loop import GraphLoop
from tune_tf.training.replicas.replicas import Replicas
from tune_tf.training.stages.stage_plan import calls_of, stage_plan
from tune_tf.training.stages.stage_step import StagePipeline, StageStep
from tune_tf.training.step import ReplicaBuilder

_HOST = "CPU:0"


class StageDevices(Replicas):
    """Replicas of several stages with one device each, without a distribution strategy.

    ``tf.distribute.MirroredStrategy`` ignores the device of a layer, so the replicas are separate
    models here. The training step is driven as on one device that takes whole batches. The devices
    are those of the first replica's stages, then of the next, and so on.
    """

    def __init__(self, devices: Devices, num_stages: int) -> None:
        super().__init__(devices.first(1))
        self.devices = devices
        self.num_stages = num_stages
        #: Devices of the stages of each replica.
        self.by_replica = [
            devices.names[first : first + num_stages]
            for first in range(0, len(devices.names), num_stages)
        ]
        self._variable_devices: Sequence[str] = ()
        self._created: list[tf.Variable] = []

    @property
    def shape(self) -> tuple[int, ...]:
        """Numbers of replicas and stages, which distinguish programs."""
        return len(self.by_replica), self.num_stages

    def build(
        self, build: Callable[[], Any], variable_devices: Sequence[str] = ()
    ) -> tuple[Any, list[Any]]:
        """Build a model; return it, and its variables in the order of their creation.

        ``build`` enters :meth:`scope` and creates variables in a fixed order, that of
        ``variable_devices``; further variables go to the host.
        """
        self._variable_devices, self._created = variable_devices, []
        try:
            return build(), self._created
        finally:
            self._variable_devices, self._created = (), []

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """Create variables on the host, or on the devices given to :meth:`build`."""
        with tf.device(_HOST), tf.variable_creator_scope(self._create):
            yield

    def _create(self, next_creator: Callable[..., tf.Variable], **settings: Any) -> tf.Variable:
        number = len(self._created)
        has_device = number < len(self._variable_devices)
        with tf.device(self._variable_devices[number]) if has_device else contextlib.nullcontext():
            variable = next_creator(**settings)
        self._created.append(variable)
        return variable


def stage_loop(replicas: StageDevices, parallelism: ModelParallel | Hybrid) -> GraphLoop:
    """Return a loop whose epochs are single graph calls over replicas and stages."""
    return GraphLoop(
        replicas,
        parallelism,
        builder=lambda workload: StageBuilder(workload, replicas, parallelism),
    )


class StageBuilder(ReplicaBuilder):
    """Builder of models on the host, and of steps that train copies of them in stages.

    The host has room for each trial's model. The copies are built once per structure, with their
    variables on the devices of their stages.
    """

    replicas: StageDevices
    _created: list[tf.Variable]  # variables of the last build, in order

    def build(self, inputs: TrialInputs) -> keras.Model:
        """Return a trial's fresh model, on the host; refuse synchronized statistics."""
        num_replicas = len(self.replicas.by_replica)
        model, self._created = self._build(inputs)
        synchronized = [layer.name for layer in batch_norms(model) if layer.synchronized]
        if synchronized and num_replicas > 1:
            raise WorkloadError(
                f"{', '.join(synchronized)}: BatchNormalization with synchronized=True cannot be "
                f"kept equal over {num_replicas} replicas that are cut into stages: use kind "
                "'mirrored' or 'model_parallel', or LayerNormalization"
            )
        warn_of_inexact_norms(model, num_replicas, self._parallelism.micro_batches)
        return model

    def step(self, model: keras.Model, inputs: TrialInputs) -> StageStep:
        """Return a step that trains copies of the model that was built last."""
        replicas, calls = self.replicas, calls_of(model)
        plan = stage_plan(calls, replicas.num_stages, self.workload.stage_of)
        stages = {
            id(variable.value): stage
            for call, stage in zip(calls, plan, strict=True)
            for variable in getattr(call.operation, "variables", ())
        }
        numbers = [stages.get(id(variable), 0) for variable in self._created]
        pipelines = []
        for devices in replicas.by_replica:
            copy, _ = self._build(inputs, [devices[number] for number in numbers])
            pipelines.append(StagePipeline(copy, plan, devices))
        return StageStep(self.workload, pipelines, replicas, self._parallelism.micro_batches)

    def _build(self, inputs: TrialInputs, devices: Sequence[str] = ()) -> tuple[Any, list[Any]]:
        config, rows, seed = inputs
        replicas, x = self.replicas, rows.sample[0]
        return replicas.build(
            lambda: build_model(self.workload, config, replicas, seed, x), devices
        )
