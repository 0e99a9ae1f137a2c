"""A trained model out of a checkpoint."""

from pathlib import Path

import keras

from tune_tf.training.build import build_to_load
from tune_tf.training.checkpoint import Checkpoint
from tune_tf.workload import Config, Workload


def trained_model(workload: Workload, config: Config, folder: Path) -> keras.Model:
    """Return the workload's model with the weights and optimizer state of a checkpoint.

    Raises:
        CheckpointError: The checkpoint cannot be read or is of another structure.
    """
    checkpoint = Checkpoint.read(folder)
    model = build_to_load(workload, config, checkpoint.seed)
    checkpoint.load_into(model, checkpoint.initial_rate)
    if getattr(model.optimizer, "use_ema", False):
        model.optimizer.finalize_variable_values(model.trainable_variables)
    return model
