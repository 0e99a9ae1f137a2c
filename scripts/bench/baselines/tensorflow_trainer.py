"""Trial of several workers as documented by Ray Train, with a custom training step."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def train(settings: Mapping[str, Any]) -> None:
    """Train in a worker of ``TensorflowTrainer``: a traced call per batch, a report per epoch.

    Args:
        settings: ``workload``, its ``config``, ``seed`` and ``num_epochs``; ``losses``, the file
            that the first worker writes the losses to.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import numpy as np
    import ray.train
    import tensorflow as tf

    from tune_tf.training.seeds import epoch_order, seed_python_and_numpy

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    workload, config, seed = settings["workload"], settings["config"], settings["seed"]
    data = workload.load_data(config)
    batch_size = workload.global_batch_size(config)
    context = ray.train.get_context()
    share = batch_size // context.get_world_size()
    mine = slice(context.get_world_rank() * share, (context.get_world_rank() + 1) * share)

    seed_python_and_numpy(seed)
    with strategy.scope():
        model = workload.build_model(config)
        model.optimizer.build(model.trainable_variables)
        model.compute_metrics(*(part[:2] for part in data.train), model(data.train[0][:2]))

    @tf.function
    def train_step(batch: Any) -> None:
        strategy.run(lambda rows: workload.train_step(model, rows), (batch,))

    @tf.function
    def test_step(batch: Any) -> None:
        strategy.run(model.test_step, (batch,))

    def batches(parts: Any, order: Any) -> Any:
        rows = order.reshape(-1, batch_size)[:, mine].ravel()
        return strategy.distribute_datasets_from_function(
            lambda _: (
                tf.data.Dataset.from_tensor_slices(tuple(part[rows] for part in parts))
                .batch(share)
                .prefetch(tf.data.AUTOTUNE)
            )
        )

    def metrics() -> dict[str, float]:
        values = model.get_metrics_result()
        return {name: float(value) for name, value in values.items()}

    losses = []
    for epoch in range(settings["num_epochs"]):
        model.reset_metrics()
        for batch in batches(data.train, epoch_order(seed, epoch, len(data.train[0]))):
            train_step(batch)
        report = metrics()
        model.reset_metrics()
        for batch in batches(data.validation, np.arange(len(data.validation[0]))):
            test_step(batch)
        report |= {f"val_{name}": value for name, value in metrics().items()}
        losses.append((report["loss"], report["val_loss"]))
        ray.train.report(report)
    if context.get_world_rank() == 0:
        Path(settings["losses"]).write_text(json.dumps(losses))
