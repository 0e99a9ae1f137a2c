"""A trained model out of a checkpoint."""

from pathlib import Path

import keras

from tune_tf.training.build import build_model, build_weights
from tune_tf.training.checkpoint import Checkpoint
from tune_tf.training.devices import Devices
from tune_tf.training.replicas import Replicas
from tune_tf.workload import Config, Workload


def trained_model(workload: Workload, config: Config, folder: Path) -> keras.Model:
    """Return the workload's model with the weights and optimizer state of a checkpoint.

    Raises:
        CheckpointError: The checkpoint cannot be read or is of another structure.
    """
    checkpoint = Checkpoint.read(folder)
    single = Replicas(Devices(("CPU:0",)))
    model = build_model(workload, config, single, checkpoint.seed)
    if not model.built:
        x = workload.load_data(config).train[0]
        build_weights(model, keras.tree.map_structure(lambda a: a[:2], x), single)
    if not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    checkpoint.load_into(model, checkpoint.initial_rate)
    if getattr(model.optimizer, "use_ema", False):
        model.optimizer.finalize_variable_values(model.trainable_variables)
    return model
